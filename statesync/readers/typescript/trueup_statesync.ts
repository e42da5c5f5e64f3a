// A reader of the statesync protocol: a proven copy of one scope, with the fetch of Node 20 or newer.
//
// docs/protocol.md describes the protocol. As a program: STATESYNC_TOKEN=... node trueup_statesync.js URL SCOPE
import { createHash } from "node:crypto";
import { pathToFileURL } from "node:url";

export type Key = { collection: string; id: string };
export type Item = Key & { version: number; deleted?: boolean; value?: unknown };
/** items are the live items by keyOf, a copy. deleted are the keys of tombstones since the last state. absent are keys
 * that a proven list lacks: no order to delete. */
export type State = { epoch: string; version: number; items: Map<string, Item>; deleted: Key[]; absent: Key[] };

/** The server refuses the credential or the request: trying again cannot help. */
export class Stopped extends Error {}
/** A frame fails a check, or the cursor cannot be resumed: only a list can prove the state again. */
export class Refused extends Error {}
/** The stream ended: come back with the cursor. */
export class Outage extends Error {}

/** No name has a control character, so a key has one text. */
export const keyOf = (of: Key): string => `${of.collection}\0${of.id}`;
const unkey = (text: string): Key => ({ collection: text.slice(0, text.indexOf("\0")), id: text.slice(text.indexOf("\0") + 1) });

type Fields = Record<string, unknown>;

function isFields(of: unknown): of is Fields {
  return typeof of === "object" && of !== null && !Array.isArray(of);
}

function fieldsOf(text: string): Fields {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    parsed = undefined;
  }
  if (!isFields(parsed)) throw new Outage(`line: ${JSON.stringify(text.slice(0, 40))} is no JSON object`);
  return parsed;
}

type Widened<T> = T extends string ? string : T extends number ? number : boolean;

function field<T extends string | number | boolean>(of: Fields, name: string, none: T): Widened<T> {
  const value = of[name] ?? none;
  const fits = typeof value === typeof none && (typeof value !== "number" || (Number.isSafeInteger(value) && value >= 0));
  if (!fits) throw new Outage(`${name}: is ${JSON.stringify(value)}, must be a ${typeof none}`);
  return value as Widened<T>;
}

function itemOf(of: unknown): Item {
  if (!isFields(of)) throw new Outage("items: must be objects");
  const item: Item = { version: field(of, "version", 0), collection: field(of, "collection", ""), id: field(of, "id", "") };
  return field(of, "deleted", false) ? { ...item, deleted: true } : { ...item, value: of["value"] };
}

/** A set of live items, and the sum of their hashes. */
class Live {
  readonly items = new Map<string, Item>();
  private sum = words("trueup statesync");

  put(key: string, item: Item): void {
    const old = this.items.get(key);
    if (old) this.add(key, old.version, -1n);
    this.items.delete(key);
    if (item.deleted) return;
    this.items.set(key, item);
    this.add(key, item.version, 1n);
  }

  digest(): string {
    return this.sum.map((word) => word.toString(16).padStart(16, "0")).join("");
  }

  private add(key: string, version: number, sign: bigint): void {
    const end = Buffer.alloc(9);
    end.writeBigUInt64BE(BigInt(version), 1);
    const more = words(Buffer.concat([Buffer.from(key), end]));
    this.sum = this.sum.map((word, n) => BigInt.asUintN(64, word + sign * (more[n] ?? 0n)));
  }
}

function words(of: string | Buffer): bigint[] {
  const hash = createHash("sha256").update(of).digest();
  return [0, 8, 16, 24].map((at) => hash.readBigUInt64BE(at));
}

/** The state of one reader. It checks each frame, and knows nothing of HTTP. */
export class Copy {
  private cursor = { epoch: "", version: 0, mark: "" };
  private live = new Live();
  private list: Live | undefined;
  private stream = "";
  private at = 0;
  private seen = { epoch: "", version: 0 }; // the highest version of the newest epoch
  private readonly left = new Set<string>(); // the earlier epochs
  private deleted = new Set<string>();
  private proven: State | undefined;

  /** Begin a stream and return the parameters of its request. */
  begin(): Record<string, string> {
    const { epoch, version, mark } = this.cursor;
    this.list = version > 0 ? undefined : new Live();
    if (this.list) this.deleted = new Set();
    this.stream = "";
    this.at = version;
    return version > 0 ? { after: String(version), epoch, ...(mark ? { mark } : {}) } : {};
  }

  /** Whether the stream has brought its header. */
  answered(): boolean {
    return this.stream !== "";
  }

  /** Ask for everything again. The last proven state stays. */
  doubt(lostHistory = false): void {
    this.cursor = { epoch: "", version: 0, mark: "" };
    if (lostHistory) this.seen = { epoch: "", version: 0 };
  }

  /** Check one frame, and return the state if the frame proves another one than before. */
  take(frame: Fields): State | undefined {
    const kind = field(frame, "type", ""), epoch = field(frame, "epoch", ""), more = field(frame, "more", false);
    const after = field(frame, "after", 0), version = field(frame, "version", 0), head = field(frame, "head", 0);
    if ((kind === "header") !== (this.stream === "")) throw new Refused(`place: ${kind}`);
    if (kind === "header") {
      if (this.left.has(epoch) || (epoch === this.seen.epoch && head < this.seen.version)) {
        throw new Refused(`behind: head ${head} of ${epoch}, ${this.seen.version} of ${this.seen.epoch} was seen`);
      }
      if (!epoch || version !== this.at || (!this.list && epoch !== this.cursor.epoch)) {
        throw new Refused(`header: version ${version} of ${epoch}`);
      }
      this.stream = epoch;
      return undefined;
    }
    if (epoch !== this.stream || after !== this.at || version < after) {
      throw new Refused(`gap: from ${after} to ${version} of ${epoch}, expected from ${this.at} of ${this.stream}`);
    }
    const sent = frame["items"] ?? [];
    if (!Array.isArray(sent)) throw new Outage("items: must be a list");
    const items = sent.map(itemOf);
    let last = after;
    for (const item of items) {
      if (item.version <= last || item.version > version) {
        throw new Refused(`gap: version ${item.version} after ${last}, in a frame to ${version}`);
      }
      last = item.version;
    }
    if (this.seen.epoch && this.seen.epoch !== epoch) this.left.add(this.seen.epoch);
    this.seen = { epoch, version: this.seen.epoch === epoch ? Math.max(version, this.seen.version) : version };
    const synced = kind === "synced" && this.list && after === version && !more;
    if (!synced && kind !== "bookmark" && kind !== (this.list ? "items" : "changes")) throw new Refused(`place: ${kind}`);
    const live = this.list ?? this.live;
    for (const item of items) {
      const key = keyOf(item);
      live.put(key, item);
      if (item.deleted) this.deleted.add(key);
      else this.deleted.delete(key);
    }
    const proves = !more && (synced || !this.list);
    if (proves && (field(frame, "count", 0) !== live.items.size || field(frame, "digest", "") !== live.digest())) {
      throw new Refused(`proof: ${live.items.size} items at version ${version}, expected ${frame["count"]}, or another digest`);
    }
    this.at = version;
    if (synced) {
      this.live = live;
      this.list = undefined;
    }
    if (!this.list) this.cursor = { epoch, version, mark: field(frame, "mark", "") || this.cursor.mark };
    if (!proves || (!synced && this.proven?.epoch === epoch && this.proven.version === version)) return undefined;
    const before = synced && this.proven ? [...this.proven.items.keys()] : [];
    const absent = before.filter((key) => !live.items.has(key) && !this.deleted.has(key)).map(unkey);
    this.proven = { epoch, version, items: new Map(live.items), deleted: [...this.deleted].map(unkey), absent };
    this.deleted = new Set();
    return this.proven;
  }
}

export class Reader {
  /** Why the last stream ended. */
  end: unknown;
  /** Called after each stream, with the reason of its end. */
  ended: (end: unknown) => void = () => {};
  private readonly copy = new Copy();
  private readonly path: string;
  private readonly headers: Record<string, string>;
  private readonly patience: number;
  private bound = 60_000;

  /** patience is how long to wait for a stream's header, in milliseconds. */
  constructor(url: string, scope: string, token = "", patience = 10_000) {
    if (!/^https?:\/\/[^/]/.test(url)) throw new TypeError("url: must be an http or https URL, such as https://control.example/sync");
    this.path = `${url.replace(/\/+$/, "")}/scopes/${encodeURIComponent(scope)}/items?`;
    this.headers = token ? { Authorization: `Bearer ${token}` } : {};
    this.patience = patience;
  }

  /** Yield each proven state, for ever. It throws Stopped after 400, 401 and 403. */
  async *states(): AsyncGenerator<State> {
    for (let away = 0, doubts = 0; ; ) { // how long there was no stream, and how often the copy was left in doubt
      const began = performance.now();
      this.bound = 60_000;
      this.end = undefined;
      try {
        yield* this.stream();
      } catch (end) {
        if (end instanceof Stopped) throw end;
        if (end instanceof Refused) this.copy.doubt(end.message.includes("other-history"));
        this.end = end; // all else is an outage
        this.ended(end);
      }
      const lasted = performance.now() - began;
      if (!this.copy.answered()) away += lasted;
      else if (lasted >= 60_000) away = doubts = 0;
      const bound = this.end instanceof Refused ? 500 * 2 ** Math.min(doubts++, 7) : Math.max(500, away);
      const pause = Math.random() * Math.min(this.bound, bound);
      away += pause;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  private async *stream(): AsyncGenerator<State> {
    const gone = new AbortController();
    const query = new URLSearchParams({ watch: "true", ...this.copy.begin() });
    let silence = this.patience;
    let timer = setTimeout(() => gone.abort(), silence);
    try {
      const answer = await fetch(`${this.path}${query}`, { headers: this.headers, redirect: "manual", signal: gone.signal });
      if (answer.status !== 200 || !answer.body) return this.judge(answer.status, await answer.text());
      const decoder = new TextDecoder("utf-8", { fatal: true });
      let text = "";
      for await (const part of answer.body) {
        text += decoder.decode(part, { stream: true });
        if (text.length > 16 << 20) throw new Outage("a line is too long");
        const lines = text.split("\n");
        text = lines.pop() ?? "";
        for (const line of lines) {
          clearTimeout(timer); // what the program does with the frame is no silence
          const frame = fieldsOf(line);
          if ("error" in frame) this.judge(200, line);
          const state = this.copy.take(frame);
          if (frame["type"] === "header" && field(frame, "heartbeat", 0) > 0) silence = (2 * field(frame, "heartbeat", 0)) / 1e6;
          if (state) yield state;
          timer = setTimeout(() => gone.abort(), silence);
        }
      }
      throw new Outage("the stream was cut");
    } finally {
      clearTimeout(timer);
      gone.abort();
    }
  }

  /** Throw what an answer, or the last line of a stream, means. */
  private judge(status: number, body: string): never {
    let code = "", reason = ""; // empty: of a proxy
    try {
      const error = fieldsOf(body)["error"];
      if (isFields(error)) [code, reason] = [field(error, "code", ""), field(error, "reason", "")];
    } catch (unread) {
      if (!(unread instanceof Outage)) throw unread;
    }
    if (status === 401 || status === 403 || code === "unauthenticated" || code === "invalid") throw new Stopped(`${status} ${code}`);
    if (code === "unknown_scope" || code === "resync_required") throw new Refused(`${code} ${reason}`);
    if (code === "unavailable") this.bound = 4_000;
    throw new Outage(`${status} ${code} ${reason}`);
  }
}

async function main(url = "", scope = ""): Promise<void> {
  if (!/^https?:\/\//.test(url) || scope === "") {
    console.error("usage: trueup_statesync http[s]://HOST/PATH SCOPE; the token is in STATESYNC_TOKEN");
    process.exit(2);
  }
  const reader = new Reader(url, scope, process.env["STATESYNC_TOKEN"]), said = new Set<string>();
  reader.ended = (end) => { // each reason once
    const cause = end instanceof Error && end.cause instanceof Error ? `: ${end.cause.message}` : "";
    const text = (end instanceof Error ? end.message : String(end)) + cause;
    if (!said.has(text)) console.error(`no stream: ${text}; it tries again`);
    said.add(text);
  };
  for await (const { items, ...state } of reader.states()) {
    process.stdout.write(JSON.stringify({ ...state, items: [...items.values()] }) + "\n");
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  main(...process.argv.slice(2)).catch((stopped: unknown) => {
    console.error(`stopped: ${stopped instanceof Error ? stopped.message : String(stopped)}`);
    process.exitCode = 1;
  });
}
