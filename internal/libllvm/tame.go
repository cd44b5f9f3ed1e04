package libllvm

import (
	"slices"
	"unsafe"
)

// unwanted are attributes of functions that would have the code generator add calls or data that a function has not got:
// stack protectors, unwind tables, sanitizers.
var unwanted = []string{
	"ssp", "sspreq", "sspstrong", "safestack", "uwtable", "shadowcallstack", "presplitcoroutine",
	"sanitize_address", "sanitize_thread", "sanitize_memory", "sanitize_hwaddress", "sanitize_memtag",
}

// tame makes everything local but what keep names, and takes from functions and variables what they may not decide: the processor,
// the model of floats, linkage, groups, calls of a C library that is not there.
func (l *Library) tame(ctx, m uintptr, keep []string) {
	nounwind := call(l.CreateEnumAttribute, ctx, l.kind("nounwind"), 0)
	alone := l.text(ctx, "no-builtins", "")
	// A frame larger than a page touches each of its pages in turn, so that no function steps over the guard below its stack.
	probes := l.text(ctx, "probe-stack", "inline-asm")
	for f := range l.functions(m) {
		if call(l.GetIntrinsicID, f) != 0 {
			continue
		}
		l.stripAttributes(f)
		call(l.AddAttributeAtIndex, f, functionIndex, nounwind)
		call(l.AddAttributeAtIndex, f, functionIndex, alone)
		call(l.AddAttributeAtIndex, f, functionIndex, probes)
		l.localise(f, keep)
		call(l.SetComdat, f, 0)
	}
	for v := range l.globals(m) {
		if cString(call(l.GetSection, v)) != metadata {
			l.localise(v, keep)
			call(l.SetComdat, v, 0)
		}
	}
	for a := range l.aliases(m) {
		l.localise(a, keep)
	}
}

const visibilityDefault, visibilityHidden = 0, 1

func (l *Library) localise(v uintptr, keep []string) {
	linkage, visibility := uintptr(linkInternal), uintptr(visibilityDefault)
	switch name := l.name(v); {
	case isTrue(call(l.IsDeclaration, v)):
		linkage = linkExternal // a weak one would be null where there is none
	case slices.Contains(keep, name):
		linkage, visibility = linkExternal, visibilityHidden
	}
	call(l.SetDLLStorageClass, v, 0)
	call(l.SetVisibility, v, visibilityDefault) // what is local has no other
	call(l.SetLinkage, v, linkage)
	call(l.SetVisibility, v, visibility)
}

// kept are the attributes with a text that a function may bring along.
func kept(kind string) bool { return kind == "frame-pointer" }

func (l *Library) stripAttributes(f uintptr) {
	n := int(uint32(call(l.GetAttributeCountAtIndex, f, functionIndex)))
	if n > 0 {
		list := make([]uintptr, n)
		call(l.GetAttributesAtIndex, f, functionIndex, uintptr(unsafe.Pointer(&list[0])))
		for _, a := range list {
			if !isTrue(call(l.IsStringAttribute, a)) {
				if kind := call(l.GetEnumAttributeKind, a); slices.Contains(l.unwanted, uintptr(uint32(kind))) {
					call(l.RemoveEnumAttributeAtIndex, f, functionIndex, uintptr(uint32(kind)))
				}
				continue
			}
			var size uint32
			p := call(l.GetStringAttributeKind, a, uintptr(unsafe.Pointer(&size)))
			if kind := string(memory(p, uintptr(size))); !kept(kind) {
				name := zero(kind)
				call(l.RemoveStringAttributeAtIndex, f, functionIndex, uintptr(unsafe.Pointer(name)), uintptr(size))
			}
		}
	}
}

// kind is the number of an attribute in this LLVM; 0: it has none of that name.
func (l *Library) kind(name string) uintptr {
	text := zero(name)
	return uintptr(uint32(call(l.GetEnumAttributeKindForName, uintptr(unsafe.Pointer(text)), uintptr(len(name)))))
}

func (l *Library) text(ctx uintptr, kind, value string) uintptr {
	k, v := zero(kind), zero(value)
	return call(l.CreateStringAttribute, ctx, uintptr(unsafe.Pointer(k)), uintptr(len(kind)), uintptr(unsafe.Pointer(v)), uintptr(len(value)))
}
