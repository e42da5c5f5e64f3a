// Makes VitePress show the pages as GitHub does: links between files, anchors, pictures.

import { existsSync, statSync } from "node:fs";
import path from "node:path";

// slug is the anchor that GitHub makes of a heading.
export const slug = (heading) => heading.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replaceAll(" ", "-");

// href returns where a link of a page leads on the site: to another page, or to a file of the repository.
export function href(link, from, { root, repository, addresses }) {
	if (/^([a-z][a-z0-9+.-]*:|#|\/\/)/i.test(link)) {
		return link;
	}
	const [target, anchor] = link.split("#");
	const file = path.posix.normalize(path.posix.join(path.posix.dirname(from), target)).replace(/\/$/, "");
	if (file.startsWith("..") || !existsSync(path.join(root, file))) {
		throw new Error(`${from}: the link ${link} leads to ${file}, must lead to a file of the repository`);
	}
	const hash = anchor === undefined ? "" : `#${anchor}`;
	if (addresses.has(file)) {
		return `/${addresses.get(file)}.md${hash}`.replace(/\/index\.md/, "/");
	}
	return `${repository}/${statSync(path.join(root, file)).isDirectory() ? "tree" : "blob"}/main/${file}${hash}`;
}

const attribute = (tag, name) => new RegExp(`\\b${name}="([^"]*)"`).exec(tag)?.[1];

// themed makes two images of a picture element: the switch of the site is none of the system.
const themed = (html) => html.replace(/<picture>([^]*?)<\/picture>/g, (whole, inside) => {
	const dark = attribute(/<source[^>]*prefers-color-scheme: dark[^>]*>/.exec(inside)?.[0] ?? "", "srcset");
	const light = /<img[^>]*>/.exec(inside)?.[0] ?? "";
	const source = attribute(light, "src");
	if (!dark || !source) {
		return whole;
	}
	const one = (scheme, src) => light.replace(`src="${source}"`, `class="when-${scheme}" src="${relative(src)}"`);
	return one("light", source) + one("dark", dark);
});

// relative marks an address as one of a file, for the bundler.
const relative = (src) => (/^([a-z]+:|[./])/.test(src) ? src : `./${src}`);

export function asOnGitHub(md, site) {
	md.core.ruler.push("links of GitHub", ({ tokens, env }) => {
		const from = path.relative(site.root, env.realPath ?? env.path).replaceAll(path.sep, "/");
		for (const token of tokens) {
			if (token.type === "html_block") {
				token.content = themed(token.content);
			}
			if (token.type === "code_block") { // an indented one: VitePress has a frame for fenced ones only
				Object.assign(token, { type: "fence", info: "text", markup: "```" });
			}
			for (const child of token.children ?? []) {
				if (child.type === "link_open") {
					child.attrSet("href", href(child.attrGet("href"), from, site));
				}
			}
		}
	});
	// A long name breaks where it has a mark: /cmd/<wbr>nodepool, spec.<wbr>kubelet, STARFORM_<wbr>REGION.
	const code = md.renderer.rules.code_inline;
	md.renderer.rules.code_inline = (tokens, index, ...more) => {
		const html = code(tokens, index, ...more);
		return tokens[index].content.length > 16 ? html.replace(/(?<=[\w}\]])([/._])(?=[\w{])(?![^<]*>)/g, "$1<wbr>") : html;
	};
	// Vue would take these for code of its own; VitePress excludes the rest.
	const text = md.renderer.rules.text;
	md.renderer.rules.text = (...all) => text(...all).replaceAll("{{", "&#123;&#123;");
}
