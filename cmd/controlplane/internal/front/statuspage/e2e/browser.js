// Starts the browser of the tests.

import { statfsSync } from "node:fs";
import { chromium } from "playwright-core";

// What the processes of a browser share is in memory where there is enough of it, as in a container often
// not: files below /tmp are written to a disk, on which a browser waits while the rest of the machine writes.
function inMemory() {
	const { bavail, bsize } = statfsSync("/dev/shm");
	return bavail * bsize >= 1 << 29;
}

export function launch() {
	return chromium.launch({
		executablePath: process.env.STATUS_CHROMIUM,
		headless: true,
		timeout: 120_000,
		env: { ...process.env, HOME: process.env.STATUS_PROFILE },
		ignoreDefaultArgs: ["--disable-dev-shm-usage"],
		args: [
			"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
			"--disable-component-update", "--disable-sync", ...(inMemory() ? [] : ["--disable-dev-shm-usage"]),
		],
	});
}
