; Which kernels there are, and who still needs each: linked once per process, with pool.ll.
;
; All kernels are one FFI target of XLA.  A call site names its kernel by two numbers, a
; hash of the code.  When XLA makes an executable it asks @onescan_instantiate for each
; call site, and keeps the record that it is given until the executable is gone; then it
; hands the record to @onescan_release.  Python holds records in the same way, for
; programs that are lowered and not yet compiled.  A record that nobody holds stays, to
; be found again, until @onescan_remove takes it out; then its code may be unloaded.
; Records have no handler until their code is there, which is before anything runs.
;
; XLA may call from any thread, and without Python's lock: so all of this is native, and
; the list is read and changed by whoever has @onescan_lock.

%Record = type { ptr, i64, i64, i64, ptr }        ; next, references, two keys, handler
%Attributes = type { i64, ptr, i64, ptr, ptr, ptr }
                            ; size, extensions, count, types, names, values
%Call = type { i64, ptr, ptr, ptr, i32, %List, %List, %Attributes }
%Scalar = type { i32, ptr }                       ; type, value
%State = type { i64, ptr, ptr, i32, ptr, ptr }
                            ; size, extensions, context, stage, type, state
%Stateful = type { i64, %Version, i32, i64 }      ; as %Metadata, and the state's type

@onescan_state_type = global i64 0                ; XLA's number for records
@onescan_idle = global i64 0                      ; how often a record was let go
@onescan_lock = global i32 0
@records = internal global ptr null
@unknown = private constant [134 x i8] c"a kernel of onescan is called that this process does not have (any more): lower and compile the function again, with onescan imported\00"

define internal void @lock() nounwind {
entry:
  br label %try

try:
  %pair = cmpxchg ptr @onescan_lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %return, label %wait

wait:
  call void @pause()
  br label %try

return:
  ret void
}

define internal void @unlock() nounwind {
  store atomic i32 0, ptr @onescan_lock release, align 4
  ret void
}

; A record without a handler, held once by the caller.
define ptr @onescan_add(i64 %high, i64 %low) nounwind {
  %record = call ptr @malloc(i64 40)
  %references.at = getelementptr %Record, ptr %record, i32 0, i32 1
  store i64 1, ptr %references.at
  %high.at = getelementptr %Record, ptr %record, i32 0, i32 2
  store i64 %high, ptr %high.at
  %low.at = getelementptr %Record, ptr %record, i32 0, i32 3
  store i64 %low, ptr %low.at
  %handler.at = getelementptr %Record, ptr %record, i32 0, i32 4
  store ptr null, ptr %handler.at
  call void @lock()
  %first = load ptr, ptr @records
  store ptr %first, ptr %record
  store ptr %record, ptr @records
  call void @unlock()
  ret ptr %record
}

; The code of a record is there.
define void @onescan_complete(ptr %record, ptr %handler) nounwind {
  %handler.at = getelementptr %Record, ptr %record, i32 0, i32 4
  store atomic ptr %handler, ptr %handler.at release, align 8
  ret void
}

; The record with these keys, held once more, or null.
define ptr @onescan_find(i64 %high, i64 %low) nounwind {
entry:
  call void @lock()
  br label %next

next:
  %place = phi ptr [ @records, %entry ], [ %record, %look ]
  %record = load ptr, ptr %place
  %end = icmp eq ptr %record, null
  br i1 %end, label %return, label %look

look:
  %high.at = getelementptr %Record, ptr %record, i32 0, i32 2
  %one = load i64, ptr %high.at
  %low.at = getelementptr %Record, ptr %record, i32 0, i32 3
  %other = load i64, ptr %low.at
  %same.high = icmp eq i64 %one, %high
  %same.low = icmp eq i64 %other, %low
  %same = and i1 %same.high, %same.low
  br i1 %same, label %hold, label %next

hold:
  %references.at = getelementptr %Record, ptr %record, i32 0, i32 1
  %references = load i64, ptr %references.at
  %more = add i64 %references, 1
  store i64 %more, ptr %references.at
  br label %return

return:
  call void @unlock()
  ret ptr %record
}

; Lets go of a record; XLA's deleter of the state of a call site, too.
define void @onescan_release(ptr %record) nounwind {
entry:
  call void @lock()
  %references.at = getelementptr %Record, ptr %record, i32 0, i32 1
  %references = load i64, ptr %references.at
  %less = sub i64 %references, 1
  store i64 %less, ptr %references.at
  %free = icmp eq i64 %less, 0
  br i1 %free, label %count, label %return

count:
  %idle = load i64, ptr @onescan_idle
  %now = add i64 %idle, 1
  store atomic i64 %now, ptr @onescan_idle monotonic, align 8
  br label %return

return:
  call void @unlock()
  ret void
}

; Takes a record out if nobody holds it: 1 where it is gone.
define i64 @onescan_remove(ptr %record) nounwind {
entry:
  call void @lock()
  %references.at = getelementptr %Record, ptr %record, i32 0, i32 1
  %references = load i64, ptr %references.at
  %free = icmp eq i64 %references, 0
  br i1 %free, label %next, label %kept

next:
  %place = phi ptr [ @records, %entry ], [ %there, %next ]
  %there = load ptr, ptr %place
  %found = icmp eq ptr %there, %record
  br i1 %found, label %take, label %next

take:
  %after = load ptr, ptr %record
  store ptr %after, ptr %place
  call void @unlock()
  call void @free(ptr %record)
  ret i64 1

kept:
  call void @unlock()
  ret i64 0
}

; XLA makes an executable: the call site gets the record that its attributes name.
define ptr @onescan_instantiate(ptr %frame) nounwind {
entry:
  %handshake = call i1 @is_handshake(ptr %frame)
  br i1 %handshake, label %answer, label %call

answer:
  %type = load i64, ptr @onescan_state_type
  call void @introduce(ptr %frame, i64 %type)
  ret ptr null

call:
  %values.at = getelementptr %Call, ptr %frame, i32 0, i32 7, i32 5
  %values = load ptr, ptr %values.at
  %high = call i64 @number(ptr %values, i64 0)
  %low = call i64 @number(ptr %values, i64 1)
  %record = call ptr @onescan_find(i64 %high, i64 %low)
  %missing = icmp eq ptr %record, null
  br i1 %missing, label %refuse, label %give

refuse:
  %error = call ptr @refusal(ptr %frame)
  ret ptr %error

give:
  %state = alloca %State
  call void @describe(ptr %state, ptr %frame)
  %state.at = getelementptr %State, ptr %state, i32 0, i32 5
  store ptr %record, ptr %state.at
  %refused = call ptr @api(ptr %frame, i32 7, ptr %state)
  %given = icmp eq ptr %refused, null
  br i1 %given, label %return, label %undo

undo:
  call void @onescan_release(ptr %record)
  br label %return

return:
  ret ptr %refused
}

; XLA runs a call site: by the handler of its record.
define ptr @onescan_execute(ptr %frame) nounwind {
entry:
  %handshake = call i1 @is_handshake(ptr %frame)
  br i1 %handshake, label %answer, label %call

answer:
  call void @introduce(ptr %frame, i64 0)
  ret ptr null

call:
  %state = alloca %State
  call void @describe(ptr %state, ptr %frame)
  %error = call ptr @api(ptr %frame, i32 8, ptr %state)
  %well = icmp eq ptr %error, null
  br i1 %well, label %run, label %failed

failed:
  ret ptr %error

run:
  %state.at = getelementptr %State, ptr %state, i32 0, i32 5
  %record = load ptr, ptr %state.at
  %handler.at = getelementptr %Record, ptr %record, i32 0, i32 4
  %handler = load ptr, ptr %handler.at
  %missing = icmp eq ptr %handler, null
  br i1 %missing, label %refuse, label %go

refuse:
  %refused = call ptr @refusal(ptr %frame)
  ret ptr %refused

go:
  %result = call ptr %handler(ptr %frame)
  ret ptr %result
}

; The error of a call site whose kernel is not there.
define internal ptr @refusal(ptr %frame) nounwind {
  %create = alloca %Create
  store %Create { i64 28, ptr null, ptr @unknown, i32 5 }, ptr %create   ; not found
  %error = call ptr @api(ptr %frame, i32 0, ptr %create)
  ret ptr %error
}

; Tells XLA which version of its FFI this is (as pool.ll does), and what the state is.
define internal void @introduce(ptr %frame, i64 %state) nounwind {
  %ignored = call ptr @onescan_run(ptr %frame, ptr null, i64 0, i64 0, i64 0, i64 1, i64 0)
  %extension.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 1
  %extension = load ptr, ptr %extension.at
  %metadata.at = getelementptr %Extension, ptr %extension, i32 0, i32 3
  %m = load ptr, ptr %metadata.at
  %state.at = getelementptr %Stateful, ptr %m, i32 0, i32 3
  store i64 %state, ptr %state.at
  ret void
}

; The state of a call site that was instantiated, to be set or asked for.
define internal void @describe(ptr %state, ptr %frame) nounwind {
  %context = call ptr @context(ptr %frame)
  store %State { i64 48, ptr null, ptr null, i32 0, ptr @onescan_state_type, ptr null }, ptr %state
  %context.at = getelementptr %State, ptr %state, i32 0, i32 2
  store ptr %context, ptr %context.at
  ret void
}

; A whole number among the attributes, which are sorted by name.
define internal i64 @number(ptr %values, i64 %which) nounwind {
  %scalar.at = getelementptr ptr, ptr %values, i64 %which
  %scalar = load ptr, ptr %scalar.at
  %value.at = getelementptr %Scalar, ptr %scalar, i32 0, i32 1
  %value = load ptr, ptr %value.at
  %number = load i64, ptr %value
  ret i64 %number
}

; One function of XLA's API, and its answer: null, or an error to hand on.
define internal ptr @api(ptr %frame, i32 %which, ptr %args) nounwind {
  %api.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 2
  %api = load ptr, ptr %api.at
  %function.at = getelementptr %Api, ptr %api, i32 0, i32 4, i32 %which
  %function = load ptr, ptr %function.at
  %answer = call ptr %function(ptr %args)
  ret ptr %answer
}
