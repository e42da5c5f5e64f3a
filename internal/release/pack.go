package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name    string
	content []byte
	mode    int64
}

// tar writes an archive of the entries, below a folder, which all have one time.
func (r *release) tar(archive, folder string, entries []entry, at time.Time) (err error) {
	into, err := os.Create(filepath.Join(r.out, archive))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, into.Close()) }()
	compressed, err := gzip.NewWriterLevel(into, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(compressed)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{
			Name: folder + "/" + e.name, Size: int64(len(e.content)), Mode: e.mode, ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}); err != nil {
			return err
		}
		if _, err := w.Write(e.content); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), compressed.Close())
}

// zip is the same for Windows.
func (r *release) zip(folder string, entries []entry, at time.Time) (err error) {
	into, err := os.Create(filepath.Join(r.out, folder+".zip"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, into.Close()) }()
	w := zip.NewWriter(into)
	for _, e := range entries {
		header := &zip.FileHeader{Name: folder + "/" + e.name, Method: zip.Deflate, Modified: at}
		header.SetMode(os.FileMode(e.mode)) //nolint:gosec // 0644 or 0755
		file, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := file.Write(e.content); err != nil {
			return err
		}
	}
	return w.Close()
}
