// Signs in to the status page with a real browser, at an issuer on another site. Run by
// sso_e2e_test.go.

import assert from "node:assert/strict";
import { test } from "node:test";
import { launch } from "./browser.js";

const { STATUS_URL: url, STATUS_ISSUER: issuer } = process.env;

test("a person who comes back from another site is logged in", async () => {
	const browser = await launch();
	try {
		const context = await browser.newContext();
		context.setDefaultTimeout(60_000);
		const page = await context.newPage();
		await page.goto(`${url}/status`);
		assert.equal(page.url(), `${url}/status/login`);
		await Promise.all([page.waitForURL(`${issuer}/**`), page.getByRole("link", { name: "Sign in with SSO" }).click()]);
		await Promise.all([page.waitForURL(`${url}/status`), page.getByRole("link", { name: "Confirm" }).click()]);
		await page.getByRole("heading", { name: "Last changes" }).waitFor();
		const cookies = await context.cookies();
		assert.deepEqual(cookies.map(({ name, sameSite }) => [name, sameSite]), [["trueup_status", "Strict"]]);
		await Promise.all([page.waitForURL(`${url}/status/login`), page.getByRole("button", { name: "Log out" }).click()]);
		await page.goto(`${url}/status`);
		assert.equal(page.url(), `${url}/status/login`);
	} finally {
		await browser.close();
	}
});
