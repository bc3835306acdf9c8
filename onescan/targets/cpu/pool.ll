; From XLA's FFI call to a kernel, and over XLA's thread pool: written once here,
; linked once per process, shared by every kernel.
;
; A kernel is `void (ptr buffers, i64 first, i64 last)`; its own module holds only a
; short handler that calls @onescan_run with its constants (handler.py, which also
; defines @pause, @sleep, @wake and @advise for the machine at hand).  Behind the
; buffers stands how often Ctrl-C had been pressed when the call began (interrupt.ll).
;
; The structs are those of XLA's FFI (xla/ffi/api/c_api.h, version 0.3), cut off after
; the last field that is read; XLA only ever appends fields.

%Version = type { i64, ptr, i32, i32 }            ; size, extensions, major, minor
%Metadata = type { i64, %Version, i32 }           ; size, version, traits
%Extension = type { i64, i32, ptr, ptr }          ; size, type, next, metadata
%Buffer = type { i64, ptr, i32, ptr }             ; size, extensions, dtype, data
%List = type { i64, ptr, i64, ptr, ptr }          ; size, extensions, count, types, items
%CallFrame = type { i64, ptr, ptr, ptr, i32, %List, %List }
                            ; size, extensions, api, context, stage, operands, results
%Api = type { i64, ptr, %Version, ptr, [17 x ptr] }
                            ; size, extensions, version, internal, functions
%Create = type { i64, ptr, ptr, i32 }             ; size, extensions, message, code
%Destroy = type { i64, ptr, ptr }                 ; size, extensions, error
%Schedule = type { i64, ptr, ptr, ptr, ptr }      ; size, extensions, context, task, data
%NumThreads = type { i64, ptr, ptr, ptr }         ; size, extensions, context, result

; One call of a kernel whose tiles several threads take in chunks.  Every thread that
; holds a pointer to the job is counted in `references`, and the last one frees it: a
; helper that XLA starts late, after the call has returned, finds no chunk left and
; touches nothing but the job.  `next` has a cache line to itself.  A caller that has
; waited long says so in `asleep`, and whoever does the last tile wakes it.
%Job = type { i64, [56 x i8], i64, i64, ptr, i64, i64, i64, i64, i64, [0 x ptr] }
      ; next, -, done, references, kernel, tiles, chunk, asleep, look, since, buffers

; The threads one call may use; set by handler.py, 1 in a forked child, where XLA's
; pool has no threads.
@onescan_cores = global i64 1

declare ptr @malloc(i64)
declare void @free(ptr)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

; The handler of XLA's FFI, with the constants of one kernel.  Null is success.  After
; every %look tiles it looks for Ctrl-C; a kernel with 0 there does not take long.
define ptr @onescan_run(ptr %frame, ptr %kernel, i64 %operands, i64 %results,
                        i64 %tiles, i64 %grain, i64 %look) nounwind {
entry:
  %handshake = call i1 @is_handshake(ptr %frame)
  br i1 %handshake, label %metadata, label %call

metadata:                       ; version 0.1: accepted by every XLA that has the FFI
  %extension.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 1
  %extension = load ptr, ptr %extension.at
  %metadata.at = getelementptr %Extension, ptr %extension, i32 0, i32 3
  %m = load ptr, ptr %metadata.at
  %size.at = getelementptr %Metadata, ptr %m, i32 0, i32 1, i32 0
  store i64 24, ptr %size.at
  %major.at = getelementptr %Metadata, ptr %m, i32 0, i32 1, i32 2
  store i32 0, ptr %major.at
  %minor.at = getelementptr %Metadata, ptr %m, i32 0, i32 1, i32 3
  store i32 1, ptr %minor.at
  %traits.at = getelementptr %Metadata, ptr %m, i32 0, i32 2
  store i32 0, ptr %traits.at
  ret ptr null

call:
  %since = load atomic i64, ptr @onescan_presses monotonic, align 8
  %stopped = call i1 @begin(ptr %frame, i64 %look)
  br i1 %stopped, label %failed, label %go

failed:
  %error = call ptr @ended(ptr %frame)
  ret ptr %error

go:
  %chunks = udiv i64 %tiles, %grain
  %cores = load i64, ptr @onescan_cores
  %useful = call i64 @llvm.umin.i64(i64 %chunks, i64 %cores)
  %worth = icmp ugt i64 %useful, 1
  br i1 %worth, label %ask, label %serial

ask:
  %pool = call i64 @num_threads(ptr %frame)
  %workers = call i64 @llvm.umin.i64(i64 %useful, i64 %pool)
  %several = icmp ugt i64 %workers, 1
  br i1 %several, label %threaded, label %serial

serial:
  %count = add i64 %operands, %results
  %slots = add i64 %count, 1
  %buffers = alloca ptr, i64 %slots
  call void @collect(ptr %buffers, ptr %frame, i64 %operands, i64 %results)
  %slot = getelementptr i64, ptr %buffers, i64 %count
  store i64 %since, ptr %slot
  call void @run_tiles(ptr %kernel, ptr %buffers, i64 0, i64 %tiles, i64 %look,
                       i64 %since)
  br label %over

threaded:
  call void @run_threaded(ptr %frame, ptr %kernel, i64 %operands, i64 %results,
                          i64 %tiles, i64 %grain, i64 %workers, i64 %look, i64 %since)
  br label %over

over:
  %ended = call i1 @is_ended(i64 %since)
  br i1 %ended, label %failed, label %well

well:
  ret ptr null
}

; Some tiles, with a look after every %look of them; 0 is none.
define internal void @run_tiles(ptr %kernel, ptr %buffers, i64 %first, i64 %last,
                                i64 %look, i64 %since) alwaysinline nounwind {
entry:
  %never = icmp eq i64 %look, 0
  br i1 %never, label %all, label %some

all:
  call void %kernel(ptr %buffers, i64 %first, i64 %last)
  ret void

some:
  %from = phi i64 [ %first, %entry ], [ %to, %next ]
  %ended = call i1 @is_ended(i64 %since)
  %done = icmp uge i64 %from, %last
  %leave = or i1 %ended, %done
  br i1 %leave, label %return, label %next

next:
  %stop = add i64 %from, %look
  %to = call i64 @llvm.umin.i64(i64 %stop, i64 %last)
  call void %kernel(ptr %buffers, i64 %from, i64 %to)
  br label %some

return:
  ret void
}

@full = internal constant [60 x i8]
  c"onescan: there is no memory for the values of a loop's step\00"

; An error if there is no memory for as many tiles as run at a time, of so many bytes
; each.  They will ask for it themselves, and have nobody to tell that there is none.
define ptr @onescan_room(ptr %frame, i64 %bytes, i64 %tiles) nounwind {
entry:
  %asked = call i1 @is_handshake(ptr %frame)
  br i1 %asked, label %return, label %try

try:
  %cores = load i64, ptr @onescan_cores
  %count = call i64 @llvm.umin.i64(i64 %tiles, i64 %cores)
  %size = mul i64 %bytes, %count
  %memory = call ptr @malloc(i64 %size)
  %lacking = icmp eq ptr %memory, null
  br i1 %lacking, label %refuse, label %free

refuse:
  %create = alloca %Create
  store %Create { i64 28, ptr null, ptr @full, i32 8 }, ptr %create   ; exhausted
  %error = call ptr @api(ptr %frame, i32 0, ptr %create)
  ret ptr %error

free:
  store volatile i8 0, ptr %memory          ; or LLVM takes the question for answered
  call void @free(ptr %memory)
  br label %return

return:
  ret ptr null
}

; Asks for large pages for one result of a call, which has so many bytes.  Fresh memory
; is mapped page by page when it is first written, which for small pages can take as
; long as the writing.  It is a hint about pages that the caller owns anyway, and about
; no more than the rest of the two pages at its ends; where the system has no such
; pages, or pages are larger than 4 KiB, it refuses and nothing is lost.
define void @onescan_large(ptr %frame, i64 %result, i64 %bytes) nounwind {
entry:
  %asked = call i1 @is_handshake(ptr %frame)
  br i1 %asked, label %return, label %advise

advise:
  %results.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 6, i32 4
  %results = load ptr, ptr %results.at
  %buffer.at = getelementptr ptr, ptr %results, i64 %result
  %buffer = load ptr, ptr %buffer.at
  %data.at = getelementptr %Buffer, ptr %buffer, i32 0, i32 3
  %data = load ptr, ptr %data.at
  %start = ptrtoint ptr %data to i64
  %first = and i64 %start, -4096
  %end = add i64 %start, %bytes
  %end.up = add i64 %end, 4095
  %last = and i64 %end.up, -4096
  %size = sub i64 %last, %first
  %page = inttoptr i64 %first to ptr
  call void @advise(ptr %page, i64 %size)
  br label %return

return:
  ret void
}

; Whether XLA only asks who we are (an extension of type 1).
define internal i1 @is_handshake(ptr %frame) nounwind {
entry:
  %extension.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 1
  %extension = load ptr, ptr %extension.at
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %no, label %extended

extended:
  %type.at = getelementptr %Extension, ptr %extension, i32 0, i32 1
  %type = load i32, ptr %type.at
  %handshake = icmp eq i32 %type, 1
  ret i1 %handshake

no:
  ret i1 false
}

; The caller does its share, and then waits for chunks that a helper has begun, never
; for a helper to begin: so it cannot deadlock, however busy the pool is and whichever
; thread the caller is on.
define internal void @run_threaded(
    ptr %frame, ptr %kernel, i64 %operands, i64 %results, i64 %tiles, i64 %grain,
    i64 %workers, i64 %look, i64 %since) nounwind {
entry:
  %count = add i64 %operands, %results
  %slots = add i64 %count, 1
  %end = getelementptr %Job, ptr null, i32 0, i32 10, i64 %slots
  %bytes = ptrtoint ptr %end to i64
  %job = call ptr @malloc(i64 %bytes)
  %next.at = getelementptr %Job, ptr %job, i32 0, i32 0
  store i64 0, ptr %next.at
  %done.at = getelementptr %Job, ptr %job, i32 0, i32 2
  store i64 0, ptr %done.at
  %references.at = getelementptr %Job, ptr %job, i32 0, i32 3
  store i64 %workers, ptr %references.at
  %kernel.at = getelementptr %Job, ptr %job, i32 0, i32 4
  store ptr %kernel, ptr %kernel.at
  %tiles.at = getelementptr %Job, ptr %job, i32 0, i32 5
  store i64 %tiles, ptr %tiles.at
  ; Four chunks each, so that a thread that comes late or is slow costs little.
  %parts = shl i64 %workers, 2
  %parts.less = sub i64 %parts, 1
  %rounded = add i64 %tiles, %parts.less
  %share = udiv i64 %rounded, %parts
  %chunk = call i64 @llvm.umax.i64(i64 %share, i64 %grain)
  %chunk.at = getelementptr %Job, ptr %job, i32 0, i32 6
  store i64 %chunk, ptr %chunk.at
  %asleep.at = getelementptr %Job, ptr %job, i32 0, i32 7
  store i64 0, ptr %asleep.at
  %look.at = getelementptr %Job, ptr %job, i32 0, i32 8
  store i64 %look, ptr %look.at
  %since.at = getelementptr %Job, ptr %job, i32 0, i32 9
  store i64 %since, ptr %since.at
  %buffers = getelementptr %Job, ptr %job, i32 0, i32 10
  call void @collect(ptr %buffers, ptr %frame, i64 %operands, i64 %results)
  %slot = getelementptr i64, ptr %buffers, i64 %count
  store i64 %since, ptr %slot
  br label %schedule

schedule:
  %helper = phi i64 [ 1, %entry ], [ %helper.next, %schedule ]
  call void @schedule(ptr %frame, ptr %job)
  %helper.next = add i64 %helper, 1
  %more = icmp ult i64 %helper.next, %workers
  br i1 %more, label %schedule, label %work

work:
  call void @work(ptr %job)
  br label %wait

wait:                           ; some microseconds: helpers are mostly done by then
  %waited = phi i64 [ 0, %work ], [ %waited.next, %spin ]
  %waited.next = add i64 %waited, 1
  %done = load atomic i64, ptr %done.at acquire, align 8
  %finished = icmp eq i64 %done, %tiles
  br i1 %finished, label %return, label %again

again:
  %patient = icmp ult i64 %waited, 1000
  br i1 %patient, label %spin, label %tell

spin:
  call void @pause()
  br label %wait

tell:
  store atomic i64 1, ptr %asleep.at seq_cst, align 8
  br label %check

check:                          ; the core is for the helper that others hold up
  %now = load atomic i64, ptr %done.at seq_cst, align 8
  %all = icmp eq i64 %now, %tiles
  br i1 %all, label %return, label %sleep

sleep:
  %seen = trunc i64 %now to i32
  call void @sleep(ptr %done.at, i32 %seen)
  br label %check

return:
  call void @release(ptr %job)
  ret void
}

; Takes chunks until none is left.
define internal void @work(ptr %job) nounwind {
entry:
  %next.at = getelementptr %Job, ptr %job, i32 0, i32 0
  %done.at = getelementptr %Job, ptr %job, i32 0, i32 2
  %kernel.at = getelementptr %Job, ptr %job, i32 0, i32 4
  %kernel = load ptr, ptr %kernel.at
  %tiles.at = getelementptr %Job, ptr %job, i32 0, i32 5
  %tiles = load i64, ptr %tiles.at
  %chunk.at = getelementptr %Job, ptr %job, i32 0, i32 6
  %chunk = load i64, ptr %chunk.at
  %asleep.at = getelementptr %Job, ptr %job, i32 0, i32 7
  %look.at = getelementptr %Job, ptr %job, i32 0, i32 8
  %look = load i64, ptr %look.at
  %since.at = getelementptr %Job, ptr %job, i32 0, i32 9
  %since = load i64, ptr %since.at
  %buffers = getelementptr %Job, ptr %job, i32 0, i32 10
  br label %take

take:
  %first = atomicrmw add ptr %next.at, i64 %chunk monotonic
  %left = icmp ult i64 %first, %tiles
  br i1 %left, label %do, label %return

do:
  %stop = add i64 %first, %chunk
  %last = call i64 @llvm.umin.i64(i64 %stop, i64 %tiles)
  call void @run_tiles(ptr %kernel, ptr %buffers, i64 %first, i64 %last, i64 %look,
                       i64 %since)
  %size = sub i64 %last, %first
  %before = atomicrmw add ptr %done.at, i64 %size seq_cst
  %after = add i64 %before, %size
  %all = icmp eq i64 %after, %tiles
  br i1 %all, label %last.one, label %take

last.one:
  %asleep = load atomic i64, ptr %asleep.at seq_cst, align 8
  %waits = icmp ne i64 %asleep, 0
  br i1 %waits, label %wake, label %take

wake:
  call void @wake(ptr %done.at)
  br label %take

return:
  ret void
}

; The task that XLA runs on a thread of its pool.
define internal void @help(ptr %job) nounwind {
  call void @work(ptr %job)
  call void @release(ptr %job)
  ret void
}

define internal void @release(ptr %job) nounwind {
entry:
  %references.at = getelementptr %Job, ptr %job, i32 0, i32 3
  %before = atomicrmw sub ptr %references.at, i64 1 acq_rel
  %last = icmp eq i64 %before, 1
  br i1 %last, label %free, label %return

free:
  call void @free(ptr %job)
  br label %return

return:
  ret void
}

; Sends one helper to the pool; where XLA refuses, the others do its share.
define internal void @schedule(ptr %frame, ptr %job) nounwind {
entry:
  %args = alloca %Schedule
  store i64 40, ptr %args
  %extension.at = getelementptr %Schedule, ptr %args, i32 0, i32 1
  store ptr null, ptr %extension.at
  %context = call ptr @context(ptr %frame)
  %context.at = getelementptr %Schedule, ptr %args, i32 0, i32 2
  store ptr %context, ptr %context.at
  %task.at = getelementptr %Schedule, ptr %args, i32 0, i32 3
  store ptr @help, ptr %task.at
  %data.at = getelementptr %Schedule, ptr %args, i32 0, i32 4
  store ptr %job, ptr %data.at
  %refused = call i1 @ask(ptr %frame, i32 11, ptr %args)
  br i1 %refused, label %drop, label %return

drop:
  call void @release(ptr %job)
  br label %return

return:
  ret void
}

; The size of XLA's pool, 0 where there is none.
define internal i64 @num_threads(ptr %frame) nounwind {
entry:
  %threads = alloca i64
  store i64 0, ptr %threads
  %context = call ptr @context(ptr %frame)
  %none = icmp eq ptr %context, null
  br i1 %none, label %return, label %query

query:
  %args = alloca %NumThreads
  store i64 32, ptr %args
  %extension.at = getelementptr %NumThreads, ptr %args, i32 0, i32 1
  store ptr null, ptr %extension.at
  %context.at = getelementptr %NumThreads, ptr %args, i32 0, i32 2
  store ptr %context, ptr %context.at
  %result.at = getelementptr %NumThreads, ptr %args, i32 0, i32 3
  store ptr %threads, ptr %result.at
  %refused = call i1 @ask(ptr %frame, i32 12, ptr %args)
  br label %return

return:
  %size = load i64, ptr %threads
  ret i64 %size
}

; Calls one function of XLA's API; true when it answered with an error.
define internal i1 @ask(ptr %frame, i32 %which, ptr %args) nounwind {
entry:
  %api.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %api.at
  %function.at = getelementptr %Api, ptr %api, i32 0, i32 4, i32 %which
  %function = load ptr, ptr %function.at
  %error = call ptr %function(ptr %args)
  %well = icmp eq ptr %error, null
  br i1 %well, label %good, label %bad

good:
  ret i1 false

bad:
  %destroy = alloca %Destroy
  store i64 24, ptr %destroy
  %extension.at = getelementptr %Destroy, ptr %destroy, i32 0, i32 1
  store ptr null, ptr %extension.at
  %error.at = getelementptr %Destroy, ptr %destroy, i32 0, i32 2
  store ptr %error, ptr %error.at
  %destroy.at = getelementptr %Api, ptr %api, i32 0, i32 4, i32 2
  %destroy.function = load ptr, ptr %destroy.at
  call void %destroy.function(ptr %destroy)
  ret i1 true
}

define internal ptr @context(ptr %frame) nounwind {
  %context.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 3
  %context = load ptr, ptr %context.at
  ret ptr %context
}

; Copies the data pointers of the operands, then those of the results.
define internal void @collect(
    ptr %to, ptr %frame, i64 %operands, i64 %results) nounwind {
  %operands.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 4
  %operand.list = load ptr, ptr %operands.at
  call void @data_pointers(ptr %to, ptr %operand.list, i64 %operands)
  %results.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 6, i32 4
  %result.list = load ptr, ptr %results.at
  %rest = getelementptr ptr, ptr %to, i64 %operands
  call void @data_pointers(ptr %rest, ptr %result.list, i64 %results)
  ret void
}

define internal void @data_pointers(ptr %to, ptr %buffers, i64 %count) nounwind {
entry:
  %none = icmp eq i64 %count, 0
  br i1 %none, label %done, label %next

next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %buffer.at = getelementptr ptr, ptr %buffers, i64 %i
  %buffer = load ptr, ptr %buffer.at
  %data.at = getelementptr %Buffer, ptr %buffer, i32 0, i32 3
  %data = load ptr, ptr %data.at
  %to.at = getelementptr ptr, ptr %to, i64 %i
  store ptr %data, ptr %to.at
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %next, label %done

done:
  ret void
}
