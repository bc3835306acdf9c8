; From XLA's FFI call to a kernel, and over XLA's thread pool: written once here,
; linked once per process, shared by every kernel.
;
; A kernel is `void (ptr buffers, i64 first, i64 last)`; its own module holds only a
; four-line handler that calls @onescan_run with its constants (handler.py).
; The structs are those of XLA's FFI (xla/ffi/api/c_api.h, version 0.3), cut off after
; the last field that is read; XLA only ever appends fields.

%Version = type { i64, ptr, i32, i32 }              ; size, extensions, major, minor
%Metadata = type { i64, %Version, i32 }             ; size, version, traits
%Extension = type { i64, i32, ptr, ptr }            ; size, type, next, metadata
%Buffers = type { i64, ptr, i64, ptr, ptr }         ; size, ext., count, types, buffers
%CallFrame = type { i64, ptr, ptr, ptr, i32, %Buffers, %Buffers }
                              ; size, ext., api, context, stage, operands, results
%Buffer = type { i64, ptr, i32, ptr }               ; size, extensions, dtype, data

; The only calls that carry this extension type ask who we are.
@METADATA = internal constant i32 1

; void* handler(XLA_FFI_CallFrame*): null is success.
define ptr @onescan_run(ptr %frame, ptr %kernel, i64 %operands, i64 %results,
                        i64 %tiles, i64 %grain) nounwind {
entry:
  %extension.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 1
  %extension = load ptr, ptr %extension.at
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %call, label %extended

extended:
  %type.at = getelementptr %Extension, ptr %extension, i32 0, i32 1
  %type = load i32, ptr %type.at
  %metadata.type = load i32, ptr @METADATA
  %handshake = icmp eq i32 %type, %metadata.type
  br i1 %handshake, label %metadata, label %call

metadata:                       ; version 0.1: accepted by every XLA that has the FFI
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
  %count = add i64 %operands, %results
  %buffers = alloca ptr, i64 %count
  %operand.list.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 5, i32 4
  %operand.list = load ptr, ptr %operand.list.at
  call void @data_pointers(ptr %buffers, ptr %operand.list, i64 %operands)
  %result.list.at = getelementptr %CallFrame, ptr %frame, i32 0, i32 6, i32 4
  %result.list = load ptr, ptr %result.list.at
  %rest = getelementptr ptr, ptr %buffers, i64 %operands
  call void @data_pointers(ptr %rest, ptr %result.list, i64 %results)
  call void %kernel(ptr %buffers, i64 0, i64 %tiles)
  ret ptr null
}

; Copies the data pointer of each of `count` XLA buffers.
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
