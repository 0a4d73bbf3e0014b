// Packs the module as a proxy serves it: packmodule FOLDER VERSION PROXY writes the archive of the module in FOLDER
// below the folder PROXY, to be used as GOPROXY=file://PROXY.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: packmodule FOLDER VERSION PROXY")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func pack(folder, version, proxy string) error {
	described, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	it := module.Version{Path: modfile.ModulePath(described), Version: version}
	base := filepath.Join(proxy, filepath.FromSlash(it.Path), "@v")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(base, version+".zip"))
	if err != nil {
		return err
	}
	defer archive.Close()
	// Modules below this one, the tools, are left out of it, as ever.
	if err := zip.CreateFromDir(archive, it, folder); err != nil {
		return err
	}
	info := fmt.Sprintf("{\"Version\":%q,\"Time\":%q}\n", version, time.Now().UTC().Format(time.RFC3339))
	for name, text := range map[string][]byte{".info": []byte(info), ".mod": described} {
		if err := os.WriteFile(filepath.Join(base, version+name), text, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(base, "list"), []byte(version+"\n"), 0o644)
}
