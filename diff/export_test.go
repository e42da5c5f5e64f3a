package diff

// ReformatPath reads a path and writes it again.
func ReformatPath(text string) (string, error) {
	path, err := parsePath(text)
	return formatPath(path), err
}
