// Package origin has the address and the actor of each request, and keeps requests
// without a valid credential from filling the log.
//
// [Handler] gives a request its address. What checks the credential calls [Verified]; until
// then the request is a stranger's. [Logger] bounds the lines that strangers cause in rate and
// in length: the one limit holds for all of them together, because a stranger may have any
// number of addresses.
package origin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
)

// Proxies are the addresses of proxies whose header X-Forwarded-For is believed.
type Proxies []netip.Prefix

// ParseProxies reads addresses and networks that are separated by commas, such as
// "10.0.0.0/8, 192.0.2.7". An empty text has none.
func ParseProxies(text string) (list Proxies, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" && strings.TrimSpace(text) == "" {
			return nil, nil
		}
		network, err := netip.ParsePrefix(part)
		if err != nil {
			address, err := netip.ParseAddr(part)
			if err != nil {
				return nil, fmt.Errorf("%.80q is neither an address nor a network, such as 192.0.2.7 or 10.0.0.0/8", part)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		list = append(list, network)
	}
	return list, nil
}

func (p Proxies) has(address netip.Addr) bool {
	for _, network := range p {
		if network.Contains(address.Unmap().WithZone("")) {
			return true
		}
	}
	return false
}

// client returns the address that the request comes from: the address of the connection, or
// if that is a proxy, the last address in X-Forwarded-For that is not a proxy. Entries before
// it were written by the client and are not trusted. An entry may have a port; an entry that is
// not an address ends the search.
func (p Proxies) client(r *http.Request) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for n := len(hops) - 1; n >= 0 && p.has(address); n-- {
		next, ok := hop(strings.TrimSpace(hops[n]))
		if !ok {
			break
		}
		address = next
	}
	return address.Unmap(), true
}

// hop returns the address of an entry of X-Forwarded-For, which some proxies write with the
// port of the client, or in brackets.
func hop(text string) (netip.Addr, bool) {
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr(), true
	}
	if inside, ok := strings.CutPrefix(text, "["); ok {
		text, ok = strings.CutSuffix(inside, "]")
		if !ok {
			return netip.Addr{}, false
		}
	}
	address, err := netip.ParseAddr(text)
	return address, err == nil
}

// record is the state that is kept of a request while it is answered.
type record struct {
	address string
	actor   atomic.Pointer[string]
}

type key struct{}

func of(ctx context.Context) *record {
	r, _ := ctx.Value(key{}).(*record)
	return r
}

// Handler gives the requests of next their address, and as RemoteAddr that address with port
// 0 if a proxy of the list has sent the request. A request that has an address keeps it.
func Handler(next http.Handler, proxies Proxies) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if of(r.Context()) == nil {
			found := &record{}
			remote := r.RemoteAddr
			if address, ok := proxies.client(r); ok {
				found.address = address.String()
				if len(proxies) > 0 {
					remote = netip.AddrPortFrom(address, 0).String()
				}
			}
			r = r.WithContext(context.WithValue(r.Context(), key{}, found))
			r.RemoteAddr = remote
		}
		next.ServeHTTP(w, r)
	})
}

// Verified records that the credential of the request was valid, and which actor has it. It
// has no effect on a context that belongs to no request.
func Verified(ctx context.Context, actor string) {
	if r := of(ctx); r != nil {
		r.actor.Store(&actor)
	}
}

// Address returns the address that the request of the context comes from; empty if it is that
// of no request.
func Address(ctx context.Context) string {
	if r := of(ctx); r != nil {
		return r.address
	}
	return ""
}

// Actor returns the actor of the context's request. It is empty if the credential was not
// found valid, or if the context belongs to no request.
func Actor(ctx context.Context) string {
	if r := of(ctx); r != nil {
		if actor := r.actor.Load(); actor != nil {
			return *actor
		}
	}
	return ""
}

// stranger reports whether the context belongs to a request without a valid credential.
func stranger(ctx context.Context) bool { return of(ctx) != nil && Actor(ctx) == "" }
