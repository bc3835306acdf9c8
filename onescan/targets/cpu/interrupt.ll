; Ctrl-C while kernels run: written once here, linked with pool.ll.
;
; Python's own handler only notes the signal, and nobody looks at the note before the
; program has ended.  So while kernels run, @on_signal stands in front of it: it counts
; the signal, wakes a thread of Python's (interrupts.py), and goes on to Python's
; handler.  That thread decides whether this Ctrl-C ends loops, and if so, writes the
; count to @onescan_stop.  A call that began before it has a smaller count, which is
; what long kernels look at now and then, and what ends the call with an error.
;
; A program may also call many short kernels, in a loop of XLA's.  These begin and end
; on both sides of the signal, but in the same run of the program.

@onescan_presses = global i64 0                 ; signals so far
@onescan_stop = global i64 0                    ; the last of them that ended loops
@onescan_asked = global i64 -9223372036854775808      ; the run of the last signal
@onescan_stopped = global i64 -9223372036854775808    ; the run that was ended
@onescan_following = global ptr null            ; Python's handler, null if unknown
@onescan_pipe = global i32 -1                   ; where the thread waits
@onescan_held_until = global i64 0              ; nanoseconds: until then, only count
@calls = internal global i64 0                  ; of kernels, so far
@run = internal global i64 -9223372036854775808       ; of the last call that asked
@asked_before = internal global i64 0           ; how often it had been asked for

@message = internal constant [38 x i8] c"onescan: the loop was ended by Ctrl-C\00"

%Timespec = type { i64, i64 }
%Action = type { ptr, [248 x i8] }              ; handler, what else the system has
%RunId = type { i64, ptr, ptr, i64 }            ; size, extensions, context, result

declare i32 @sigaction(i32, ptr, ptr)
declare i64 @write(i32, ptr, i64)
declare i32 @clock_gettime(i32, ptr)

define void @onescan_on_signal(i32 %signal) nounwind {
entry:
  %before = atomicrmw add ptr @onescan_presses, i64 1 monotonic
  %run = load atomic i64, ptr @run monotonic, align 8
  store atomic i64 %run, ptr @onescan_asked monotonic, align 8
  %time = alloca %Timespec
  %ignored = call i32 @clock_gettime(i32 {clock}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr %Timespec, ptr %time, i32 0, i32 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %until = load atomic i64, ptr @onescan_held_until monotonic, align 8
  %held = icmp slt i64 %now, %until
  br i1 %held, label %done, label %wake

wake:
  %errno.at = call ptr @{errno}()
  %errno = load i32, ptr %errno.at
  %pipe = load i32, ptr @onescan_pipe
  %sent = call i64 @write(i32 %pipe, ptr @message, i64 1)
  store i32 %errno, ptr %errno.at
  %handler = load ptr, ptr @onescan_following
  call void %handler(i32 %signal)
  br label %done

done:
  ret void
}

declare ptr @{errno}()

; Puts @on_signal in front of Python's handler, if that is the one in place: whoever
; else handles or ignores the signal is left alone.
define void @onescan_listen() nounwind {
entry:
  %python = load ptr, ptr @onescan_following
  %unknown = icmp eq ptr %python, null
  br i1 %unknown, label %return, label %look

look:
  %action = alloca %Action, align 16
  %asked = call i32 @sigaction(i32 {signal}, ptr null, ptr %action)
  %handler = load ptr, ptr %action
  %plain = icmp eq ptr %handler, %python
  br i1 %plain, label %replace, label %return

replace:
  store ptr @onescan_on_signal, ptr %action
  %done = call i32 @sigaction(i32 {signal}, ptr %action, ptr null)
  br label %return

return:
  ret void
}

; Notes that a call begins; whether its run has been ended already.  A kernel that looks
; at the count listens for the signal, and so does every run of many short ones.  Of
; those, one in sixteen asks which run it is in, because the answer takes XLA 30 ns.
define internal i1 @begin(ptr %frame, i64 %look) alwaysinline nounwind {
entry:
  %calls = load atomic i64, ptr @calls monotonic, align 8
  %next = add i64 %calls, 1
  store atomic i64 %next, ptr @calls monotonic, align 8
  %turn = and i64 %calls, 15
  %looks = icmp ne i64 %look, 0
  %asks = icmp eq i64 %turn, 0
  %wants = or i1 %looks, %asks
  br i1 %wants, label %ask, label %no

ask:
  %run = call i64 @run_of(ptr %frame)
  %latest = load atomic i64, ptr @run monotonic, align 8
  %again = icmp eq i64 %run, %latest
  store atomic i64 %run, ptr @run monotonic, align 8
  %before = load atomic i64, ptr @asked_before monotonic, align 8
  %more = add i64 %before, 1
  %count = select i1 %again, i64 %more, i64 0
  store atomic i64 %count, ptr @asked_before monotonic, align 8
  %many = icmp eq i64 %count, 4
  %listens = or i1 %many, %looks
  br i1 %listens, label %listen, label %answer

listen:
  call void @onescan_listen()
  br label %answer

answer:
  %ended = load atomic i64, ptr @onescan_stopped monotonic, align 8
  %stopped = icmp eq i64 %run, %ended
  ret i1 %stopped

no:
  ret i1 false
}

; Whether the calls that began after so many signals are to end.
define internal i1 @is_ended(i64 %since) alwaysinline nounwind {
  %stop = load atomic i64, ptr @onescan_stop monotonic, align 8
  %ended = icmp sgt i64 %stop, %since
  ret i1 %ended
}

; The number of this run of the program, 0 where XLA does not say.
define internal i64 @run_of(ptr %frame) nounwind {
entry:
  %args = alloca %RunId
  store i64 32, ptr %args
  %extension.at = getelementptr %RunId, ptr %args, i32 0, i32 1
  store ptr null, ptr %extension.at
  %run.at = getelementptr %RunId, ptr %args, i32 0, i32 3
  store i64 0, ptr %run.at
  %context = call ptr @context(ptr %frame)
  %none = icmp eq ptr %context, null
  br i1 %none, label %return, label %query

query:
  %context.at = getelementptr %RunId, ptr %args, i32 0, i32 2
  store ptr %context, ptr %context.at
  %refused = call i1 @ask(ptr %frame, i32 16, ptr %args)
  br label %return

return:
  %run = load i64, ptr %run.at
  ret i64 %run
}

; The error of a call that was ended (code 1 is "cancelled").
define internal ptr @ended(ptr %frame) nounwind {
  %args = alloca %Create
  store i64 28, ptr %args
  %extension.at = getelementptr %Create, ptr %args, i32 0, i32 1
  store ptr null, ptr %extension.at
  %message.at = getelementptr %Create, ptr %args, i32 0, i32 2
  store ptr @message, ptr %message.at
  %code.at = getelementptr %Create, ptr %args, i32 0, i32 3
  store i32 1, ptr %code.at
  %api.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %api.at
  %create.at = getelementptr %Api, ptr %api, i32 0, i32 4, i32 0
  %create = load ptr, ptr %create.at
  %error = call ptr %create(ptr %args)
  ret ptr %error
}
