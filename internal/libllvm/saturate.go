package libllvm

import "unsafe"

const (
	typeHalf, typeFloat, typeDouble = 1, 2, 3
	typeVector, typeScalableVector  = 13, 19
)

// saturate gives each cast of a float to an integer an answer where the integer's type does not hold the value: its end next to it, and 0 for a NaN, as wasm's
// conversions do. LLVM leaves the answer open there, and each processor gives another one. fn build has clang write such casts; other compilers' bitcode has the plain ones.
func (l *Library) saturate(ctx, m uintptr) {
	if len(l.casts) == 0 {
		return
	}
	builder := call(l.CreateBuilderInContext, ctx)
	defer call(l.DisposeBuilder, builder)
	for _, cast := range l.casts {
		value := call(l.GetOperand, cast, 0)
		types := [2]uintptr{call(l.TypeOf, cast), call(l.TypeOf, value)}
		if !l.isFloat(types[1]) {
			continue // long double, which only some processors have
		}
		name := "llvm.fptosi.sat"
		if uint32(call(l.GetInstructionOpcode, cast)) == opFPToUI {
			name = "llvm.fptoui.sat"
		}
		text, empty, args := zero(name), zero(""), [1]uintptr{value}
		id := uintptr(uint32(call(l.LookupIntrinsicID, uintptr(unsafe.Pointer(text)), uintptr(len(name)))))
		f := call(l.GetIntrinsicDeclaration, m, id, uintptr(unsafe.Pointer(&types[0])), uintptr(len(types)))
		call(l.PositionBuilderBefore, builder, cast)
		made := call(l.BuildCall2, builder, call(l.GlobalGetValueType, f), f, uintptr(unsafe.Pointer(&args[0])), uintptr(len(args)), uintptr(unsafe.Pointer(empty)))
		call(l.ReplaceAllUsesWith, cast, made)
		call(l.InstructionEraseFromParent, cast)
	}
}

// isFloat reports whether a type is float, double or half, or a vector of these.
func (l *Library) isFloat(t uintptr) bool {
	kind := uint32(call(l.GetTypeKind, t))
	if kind == typeVector || kind == typeScalableVector {
		kind = uint32(call(l.GetTypeKind, call(l.GetElementType, t)))
	}
	return kind == typeHalf || kind == typeFloat || kind == typeDouble
}
