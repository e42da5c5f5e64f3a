package oidcauth

import "time"

// Forget has the next fetch not wait for the pause.
func (p *People) Forget() {
	p.issuer.mu.Lock()
	defer p.issuer.mu.Unlock()
	p.issuer.tried = time.Time{}
}

// Age has the keys be old, and the next fetch not wait.
func (p *People) Age() {
	p.Forget()
	p.issuer.mu.Lock()
	defer p.issuer.mu.Unlock()
	p.issuer.fetched = time.Now().Add(-keysAge)
}
