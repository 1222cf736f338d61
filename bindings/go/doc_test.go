package txos_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// Everything that is exported says what it is.
func TestDocumentation(t *testing.T) {
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range []string{"doc.go", "errors.go", "group.go", "library.go", "options.go", "txos.go"} {
		file, err := parser.ParseFile(files, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	all, err := doc.NewFromFiles(files, parsed, "txos")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	said := func(name, text string) {
		count++
		if !strings.Contains(text, strings.TrimPrefix(name, "Error.")) {
			t.Errorf("%s: %q", name, text)
		}
	}
	said("txos", all.Doc)
	functions := all.Funcs
	for _, kind := range all.Types {
		said(kind.Name, kind.Doc)
		functions = append(functions, kind.Funcs...)
		for _, method := range kind.Methods {
			said(method.Name, method.Doc)
		}
	}
	for _, function := range functions {
		said(function.Name, function.Doc)
	}
	for _, group := range all.Vars {
		for _, spec := range group.Decl.Specs {
			value := spec.(*ast.ValueSpec)
			said(value.Names[0].Name, value.Doc.Text())
		}
	}
	if count < 25 {
		t.Errorf("only %d names", count)
	}
}
