package storage

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	suite "k8s.io/apiserver/pkg/storage/testing"
)

// suiteFolder is where the sources are that this test was built from.
func suiteFolder(t *testing.T) string {
	t.Helper()
	known := runtime.FuncForPC(reflect.ValueOf(suite.RunTestCreate).Pointer())
	file, _ := known.FileLine(known.Entry())
	if filepath.IsAbs(file) {
		return filepath.Dir(file)
	}
	// Built with trimmed paths: PATH@VERSION/... stands below the module cache.
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(filepath.Join(strings.TrimSpace(string(cache)), file))
}

// TestEveryTestOfTheSuiteIsRunOrLeftOutWithAReason reads the suite's sources, so that a new version of it cannot add a
// test that is passed over in silence.
func TestEveryTestOfTheSuiteIsRunOrLeftOutWithAReason(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(suiteFolder(t), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources in %s: %v", suiteFolder(t), err)
	}
	inSuite := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if ok && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Run") {
				inSuite[function.Name.Name] = true
			}
		}
	}
	if len(inSuite) < 50 {
		t.Fatalf("only %d tests found in %v", len(inSuite), files)
	}
	listed := map[string]bool{}
	for _, entry := range append(append([]entry{}, table...), ofThisLine...) {
		if listed[entry.name] {
			t.Errorf("%s is listed twice", entry.name)
		}
		listed[entry.name] = true
		if !inSuite[entry.name] {
			t.Errorf("%s is listed and not in the suite", entry.name)
		}
	}
	for name := range inSuite {
		reason := leftOut[name]
		switch {
		case !listed[name] && reason == "":
			t.Errorf("%s is in the suite, and neither run nor left out with a reason", name)
		case listed[name] && reason != "":
			t.Errorf("%s is run and also left out: %s", name, reason)
		case reason != "":
			t.Logf("left out: %s: %s", name, reason)
		}
	}
	t.Logf("%d tests are run", len(listed))
}
