"use strict";
(() => {
  const get = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const root = document.documentElement;
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  // light and dark: as the system has it, until the button is used
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = (isDark) => { root.dataset.theme = isDark ? "dark" : "light"; };
  paint(dark.matches);
  dark.addEventListener("change", (event) => paint(event.matches));
  get("theme").hidden = false;
  get("theme").addEventListener("click", () => paint(root.dataset.theme !== "dark"));

  // tabs
  const tabs = all("[role=tab]");
  function open(tab, focus) {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", chosen);
      other.tabIndex = chosen ? 0 : -1;
      get(other.getAttribute("aria-controls")).hidden = !chosen;
    }
    if (focus) tab.focus();
    draw();
  }
  root.classList.add("tabbed");
  get("tabs").hidden = false;
  tabs.forEach((tab, i) => {
    const panel = get(tab.getAttribute("aria-controls"));
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    panel.removeAttribute("aria-label");
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      open(tabs[(to + tabs.length) % tabs.length], true);
    });
  });

  // the walk: one row of the table at a time, in the diagram
  const rows = all("#steps tbody tr:not(.gap)");
  const length = Number(get("steps").dataset.length);
  const stepOf = (row) => Number(row.dataset.step);
  const walks = rows.length > 0 && rows[0].dataset.step !== undefined;
  const SHORT = 8; // characters of a value that fit into a tape
  let current = 0;

  function textOf(row, kind) {
    return row.querySelector(`.${kind}`).textContent.trim();
  }

  function cell(row, kind) {
    const text = textOf(row, kind);
    return text.length <= SHORT ? text : row.dataset.index;
  }

  function tape(id, kind) {
    const inOrder = [...rows].sort((a, b) => a.dataset.index - b.dataset.index);
    let last = -1;
    const cells = [];
    if (rows.every((row) => textOf(row, kind) === "None")) {
      get(id).replaceChildren(item("none", "none"));
      return;
    }
    for (const row of walks ? inOrder : []) {
      const index = Number(row.dataset.index);
      if (index !== last + 1) cells.push(item("⋮", "gap"));
      last = index;
      const here = item("", "");
      here.row = row;
      here.kind = kind;
      cells.push(here);
    }
    if (!walks) cells.push(item("0", "now"), item("⋮", "gap"), item(String(length - 1), ""));
    get(id).replaceChildren(...cells);
  }

  function item(text, name) {
    const made = document.createElement("li");
    made.textContent = text;
    made.className = name;
    return made;
  }

  function fill() {
    for (const one of all(".tape li")) {
      if (!one.row) continue;
      const at = rows.indexOf(one.row);
      const made = one.kind === "x" || at <= current;
      one.classList.toggle("now", at === current);
      one.classList.toggle("made", made);
      one.textContent = made ? cell(one.row, one.kind) : "";
      one.setAttribute("aria-label", `${one.kind} ${one.row.dataset.index}: ${one.textContent || "not yet"}`);
    }
  }

  function show(at, moving = true) {
    current = Math.max(0, Math.min(rows.length - 1, at));
    const row = rows[current];
    for (const kind of ["carry-in", "x", "carry-out", "y"]) {
      const copies = [...row.querySelector(`.${kind}`).childNodes].map((n) => n.cloneNode(true));
      get(kind).replaceChildren(...copies);
    }
    rows.forEach((other) => other.classList.toggle("now", other === row && walks));
    fill();
    const step = walks ? stepOf(row) : 0;
    get("when").textContent = walks ? `step ${step}` : "every step";
    get("slider").value = current;
    get("slider").setAttribute("aria-valuetext", `step ${step} of ${length}`);
    get("now").textContent = `step ${step}, ${step + 1} of ${length}`;
    get("back").disabled = current === 0;
    get("on").disabled = current === rows.length - 1;
    draw();
    if (moving) move();
  }

  // wires, drawn between the boxes wherever these are
  const SVG = "http://www.w3.org/2000/svg";
  function draw() {
    const figure = get("diagram");
    const svg = get("wires");
    svg.replaceChildren();
    if (figure.hidden || get("walk").hidden) return;
    const origin = svg.getBoundingClientRect();
    const box = (element) => {
      const r = element.getBoundingClientRect();
      return { l: r.left - origin.left, r: r.right - origin.left, t: r.top - origin.top,
        b: r.bottom - origin.top, x: (r.left + r.right) / 2 - origin.left, y: (r.top + r.bottom) / 2 - origin.top };
    };
    const body = box(figure.querySelector(".body"));
    const [x, y, before, after] = ["x", "y", "carry-in", "carry-out"].map((id) => box(get(id)));
    const read = figure.querySelector(".xs .now");
    const made = figure.querySelector(".ys .now");
    if (read) wire("x", ...drop(box(read), x));
    if (read) wire("x", `M${x.r},${x.y} C${x.r + 20},${x.y} ${body.l - 28},${body.y} ${body.l - 9},${body.y}`, [body.l - 1, body.y, 0]);
    if (made) wire("y", `M${body.r},${body.y} C${body.r + 20},${body.y} ${y.l - 28},${y.y} ${y.l - 9},${y.y}`, [y.l - 1, y.y, 0]);
    if (made) wire("y", ...rise(y, box(made)));
    const out = body.x + (body.r - body.l) / 4;
    const back = body.x - (body.r - body.l) / 4;
    wire("carry", `M${out},${body.b} C${out},${after.y} ${after.l - 40},${after.y} ${after.l - 9},${after.y}`, [after.l - 1, after.y, 0]);
    const low = Math.max(before.b, after.b) + 26;
    wire("carry", `M${after.x},${after.b} C${after.x},${low + 6} ${after.x - 30},${low} ${after.x - 60},${low} L${before.x + 60},${low} C${before.x + 30},${low} ${before.x},${low + 6} ${before.x},${before.b + 9}`, [before.x, before.b + 1, -90]);
    wire("carry", `M${before.r},${before.y} C${before.r + 40},${before.y} ${back},${before.y} ${back},${body.b + 9}`, [back, body.b + 1, -90]);

    function drop(from, to) {
      const end = Math.min(Math.max(from.x, to.l + 14), to.r - 14);
      const top = to.t - 22; // above the heading of the box
      return [`M${from.x},${from.b + 1} C${from.x},${top} ${end},${from.b} ${end},${to.t - 9}`, [end, to.t - 1, 90]];
    }
    function rise(from, to) {
      const start = Math.min(Math.max(to.x, from.l + 14), from.r - 14);
      return [`M${start},${from.t} C${start},${to.b + 8} ${to.x},${from.t - 8} ${to.x},${to.b + 10}`, [to.x, to.b + 2, -90]];
    }
    function wire(kind, path, [tipX, tipY, turn]) {
      const line = document.createElementNS(SVG, "path");
      line.setAttribute("d", path);
      line.setAttribute("class", kind);
      const tip = document.createElementNS(SVG, "path");
      tip.setAttribute("d", "M0,0 L-10,-5.5 L-10,5.5 Z");
      tip.setAttribute("class", `tip ${kind}`);
      tip.setAttribute("transform", `translate(${tipX} ${tipY}) rotate(${turn})`);
      svg.append(line, tip);
    }
  }

  // a dot runs along each wire: in by x and the carry, then out by y and the carry
  let frame = 0;
  function move() {
    cancelAnimationFrame(frame);
    if (still.matches || get("walk").hidden) return;
    const lines = all("#wires path:not(.tip)");
    const dots = lines.map((line) => {
      const dot = document.createElementNS(SVG, "circle");
      dot.setAttribute("r", 6);
      dot.setAttribute("class", line.getAttribute("class"));
      return dot;
    });
    const begin = performance.now();
    // when x goes down and in, y out and up, the carry out, round and in
    const times = { x: [0, 350], y: [900, 1250], carry: [900, 0, 350] };
    const starts = lines.map((line) => times[line.getAttribute("class")].shift());
    const turn = (now) => {
      let busy = false;
      lines.forEach((line, i) => {
        const part = (now - begin - starts[i]) / 380;
        if (part >= 1 || !line.isConnected) { dots[i].remove(); return; }
        busy = true;
        if (part < 0) return;
        const at = line.getPointAtLength(part * line.getTotalLength());
        dots[i].setAttribute("cx", at.x);
        dots[i].setAttribute("cy", at.y);
        if (!dots[i].isConnected) get("wires").append(dots[i]);
      });
      if (busy) frame = requestAnimationFrame(turn);
    };
    frame = requestAnimationFrame(turn);
  }

  let timer = 0;
  function play(run) {
    clearInterval(timer);
    timer = 0;
    get("play").setAttribute("aria-pressed", run);
    get("play").textContent = run ? "Pause" : "Play";
    if (!run) return;
    if (current === rows.length - 1) show(0);
    timer = setInterval(() => {
      if (current === rows.length - 1) play(false);
      else show(current + 1);
    }, 1900);
  }

  if (rows.length) {
    get("diagram").hidden = false;
    get("controls").hidden = !walks;
    if (!walks) get("steps").parentElement.hidden = true;
    get("slider").max = rows.length - 1;
    tape("xs", "x");
    tape("ys", "y");
    get("slider").addEventListener("input", (event) => { play(false); show(Number(event.target.value)); });
    get("back").addEventListener("click", () => { play(false); show(current - 1); });
    get("on").addEventListener("click", () => { play(false); show(current + 1); });
    get("play").addEventListener("click", () => play(!timer));
    rows.forEach((row, i) => row.querySelector(".go")?.addEventListener("click", () => { play(false); show(i); }));
    document.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const busy = event.target.closest("input, select, [role=tab]") || event.altKey || event.ctrlKey || event.metaKey;
      if (!by || busy || get("walk").hidden || !walks) return;
      event.preventDefault();
      play(false);
      show(current + by);
    });
    addEventListener("resize", draw);
  }

  // the source, by platform
  const choice = get("platform");
  if (choice) {
    const pick = () => all(".on-platform").forEach((panel) => { panel.hidden = panel.dataset.platform !== choice.value; });
    choice.addEventListener("change", pick);
    pick();
  }

  open(tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash) || tabs[0]);
  if (rows.length) show(0, false);
})();
