"use strict";

// Replaces the sections of the page as the server tells of their change. The page
// is whole without it.
(() => {
	const live = document.getElementById("live");
	const clock = document.getElementById("now");
	// How far the server's clock is ahead of this one, in milliseconds.
	let ahead = Date.parse(clock.dateTime) - Date.now();

	const say = (text, lost) => {
		if (live.textContent !== text) live.textContent = text;
		live.classList.toggle("lost", lost);
	};

	// As age in render.go.
	const age = (seconds) => {
		if (seconds < 90) return `${Math.max(0, Math.floor(seconds))} s ago`;
		if (seconds < 90 * 60) return `${Math.floor(seconds / 60)} min ago`;
		if (seconds < 36 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
		return `${Math.floor(seconds / 86400)} d ago`;
	};

	const tick = () => {
		const now = Date.now() + ahead;
		for (const at of document.querySelectorAll("time[datetime] > .age")) {
			const text = age((now - Date.parse(at.parentElement.dateTime)) / 1000);
			if (at.textContent !== text) at.textContent = text;
		}
	};

	const asOf = (now) => {
		ahead = Date.parse(now) - Date.now();
		const exact = new Date(now).toISOString();
		clock.dateTime = exact;
		clock.textContent = `${exact.slice(0, 10)} ${exact.slice(11, 19)} UTC`;
	};

	// What the reader has opened or closed, and where he is, stays.
	const replace = (section, html) => {
		const open = new Map([...section.querySelectorAll("details[id]")].map((d) => [d.id, d.open]));
		const focused = section.contains(document.activeElement) ? document.activeElement.closest("details[id]")?.id : undefined;
		section.innerHTML = html;
		for (const details of section.querySelectorAll("details[id]")) {
			if (open.has(details.id)) details.open = open.get(details.id);
			if (details.id === focused) details.querySelector("summary")?.focus();
		}
	};

	// For when there is no stream: the whole page once more.
	const reload = async () => {
		const answer = await fetch(`/status${location.search}`, { redirect: "manual", cache: "no-store" });
		if (answer.type === "opaqueredirect") {
			location.assign("/status/login");
			return;
		}
		if (!answer.ok) return;
		const page = new DOMParser().parseFromString(await answer.text(), "text/html");
		for (const section of document.querySelectorAll("section[data-live]")) {
			const next = page.getElementById(section.id);
			if (next) replace(section, next.innerHTML);
		}
		asOf(page.getElementById("now").dateTime);
	};

	let source;

	const connect = () => {
		source = new EventSource(`/status/events${location.search}`);
		source.addEventListener("open", () => say("live", false));
		source.addEventListener("section", (message) => {
			const { section, now, html } = JSON.parse(message.data);
			asOf(now);
			const target = document.getElementById(section);
			if (target) replace(target, html);
			tick();
		});
		source.addEventListener("end", () => {
			source.close();
			location.assign("/status/login");
		});
		source.addEventListener("error", () => {
			say("reconnecting", true);
			if (source.readyState !== EventSource.CLOSED) return;
			say("not live, looking every 15 s", true);
			setTimeout(() => reload().catch(() => {}).finally(() => {
				if (source.readyState === EventSource.CLOSED) connect();
			}), 15000);
		});
	};

	// Another page of a list, or another search: the lists alone, and a stream of them. What
	// cannot be fetched is loaded as a page.
	let asked = 0;

	const show = async (target, keep) => {
		const turn = ++asked;
		try {
			const answer = await fetch(`/status/rows${target.search}`, { redirect: "manual", cache: "no-store" });
			if (!answer.ok) throw new Error(answer.statusText);
			const { now, sections } = await answer.json();
			if (turn !== asked) return;
			if (keep) history.pushState(null, "", target);
			source.close();
			for (const { section, html } of sections) replace(document.getElementById(section), html);
			asOf(now);
			tick();
			connect();
			document.getElementById("q").value = target.searchParams.get("q") ?? "";
			const title = document.getElementById(`${target.hash.slice(1)}-title`);
			if (title) {
				title.tabIndex = -1;
				title.focus();
			}
		} catch {
			if (turn === asked) location.assign(target);
		}
	};

	document.addEventListener("click", (event) => {
		const link = event.target.closest("nav.pager a, p.empty a");
		if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
		event.preventDefault();
		show(new URL(link.href), true);
	});
	document.querySelector("form.search").addEventListener("submit", (event) => {
		event.preventDefault();
		const target = new URL("/status", location.href);
		const text = new FormData(event.target).get("q").trim();
		if (text) target.searchParams.set("q", text);
		show(target, true);
	});
	addEventListener("popstate", () => show(new URL(location.href), false));

	// The server ends the stream of a session that is logged out, which must not
	// stop the logout.
	document.querySelector("header form")?.addEventListener("submit", () => source.close());
	setInterval(tick, 1000);
	connect();
})();
