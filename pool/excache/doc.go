// Package excache keeps a bounded part of a program's memory local and the rest in a store.
package excache
