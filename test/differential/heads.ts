/**
 * Head equivalence: a generated head goes through every way into the gateway, and each must come to the verdict of plain
 * HTTP/1.1, with the same text, and the backend must read the same request. Differences are rows of a table, each with
 * the section of the RFC that requires it.
 */
import { type ClientHttp2Session, connect as connectHttp2, type OutgoingHttpHeaders } from "node:http2";
import type { Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { files, TLS } from "../support/http2/peers.ts";
import { Random } from "../support/random.ts";
import { certificates } from "../support/tls/certificates.ts";
import { openReportingBackend, type ReportingBackend } from "./backends.ts";
import { targetOf } from "./cases.ts";
import {
  type Answer,
  Connection,
  type DifferentialOptions,
  type DifferentialReport,
  plainSocket,
  readingIn,
} from "./run.ts";

interface HeadCase {
  readonly method: string;
  readonly target: string;
  readonly host: string;
  /** Lines without their ends. */
  readonly lines: readonly string[];
}

type Door = "h1" | "tls" | "proxy protocol" | "forward proxy" | "h2c" | "h2" | "ui" | "admin";

/** `reset` is a stream error, or a head that the client's library does not send. */
type Verdict = Answer | "reset";

const DOORS: readonly Door[] = ["tls", "proxy protocol", "forward proxy", "h2c", "h2", "ui", "admin"];
const HTTP2: readonly Door[] = ["h2c", "h2"];

/** Rejections by the rules for heads. The UI and the admin interface have other reasons to reject a request, too. */
const HEAD_ERRORS = new Set(["bad_request", "too_many_headers", "expectation_failed"]);
const CONNECTION_FIELD =
  /^(?:connection|keep-alive|proxy-connection|upgrade|transfer-encoding):|^te:(?!\s*trailers\s*$)/i;

/** The differences that RFCs require. No row is about the method, path, host, or credentials of an accepted request. */
export const HEAD_ROWS: readonly {
  readonly what: string;
  readonly rfc: string;
  readonly doors: readonly Door[];
  applies(one: HeadCase, expected: Answer, found: Verdict): boolean;
  /** Plain HTTP/1.1 must come to the found verdict for this head. */
  alike?(one: HeadCase): HeadCase;
}[] = [
  {
    what: "connection-specific fields make an HTTP/2 request malformed",
    rfc: "RFC 9113 section 8.2.2",
    doors: HTTP2,
    applies: ({ lines }, _expected, found) => lines.some((line) => CONNECTION_FIELD.test(line)) && found === "reset",
  },
  {
    what: "a malformed HTTP/2 request is a stream error without a response",
    rfc: "RFC 9113 section 8.1.1",
    doors: HTTP2,
    applies: (_one, { status }, found) => status >= 400 && found === "reset",
  },
  {
    what: "nghttp2 drops a field whose value has a control character, and the backend does not receive it either",
    rfc: "RFC 9113 section 8.2.1",
    doors: HTTP2,
    applies: ({ lines }, { status }) => lines.includes(CONTROLLED) && status === 400,
    alike: (one) => ({ ...one, lines: one.lines.filter((line) => line !== CONTROLLED) }),
  },
  {
    what: "HTTP/2 has no absolute form",
    rfc: "RFC 9113 section 8.3.1",
    doors: HTTP2,
    applies: ({ target }, _expected, found) =>
      /^[a-z]+:\/\//i.test(target) && (found === "reset" || found.status === 400),
  },
  {
    what: "the Host header of a request to a proxy has another place in the head, so another fault may be found first",
    rfc: "RFC 9112 section 3.2.2",
    doors: ["forward proxy", ...HTTP2],
    applies: (_one, { error }, found) =>
      (HEAD_ERRORS.has(error ?? "") || error === "method_not_allowed") && found !== "reset" && found.status === 400,
  },
  {
    what: "the admin interface accepts heads up to 8 KiB",
    rfc: "RFC 6585 section 5",
    doors: ["admin"],
    applies: ({ lines }, _expected, found) =>
      lines.join().length > 5_000 && found !== "reset" && (found.status === 431 || found.status === 0),
  },
];

const CONTROLLED = "x-bad: a\u0001b";
const METHODS = ["GET", "GET", "GET", "GET", "DELETE", "HEAD", "OPTIONS", "PROPFIND"];
const ODD_METHODS = ["delete", "Get", "TRACE", "FOO", "GETX", "get-", "M-SEARCH", "PATCH"];
const HOSTS = [
  "a.test",
  "a.test",
  "a.test:80",
  "A.Test",
  "a.test.",
  "b_c.test:0080",
  "[::1]:1",
  "[0::1]",
  "127.0.0.1",
  "xn--bcher-kva.test",
];
const ODD_HOSTS = [
  "",
  ".",
  "a..b",
  "a b",
  "a,b",
  "a/b",
  "u@a",
  "a:x",
  "a:99999",
  "[::1",
  "[g::]",
  "a%41",
  "a?b",
  "a#b",
];
const TARGETS = [
  "*",
  "a",
  "http://a.test/x",
  "HTTP://A.test./x",
  "https://a.test/x",
  "ftp://a.test/",
  "/a#b",
  "/a?b#c",
  "//a.test/x",
];
const LINES = [
  "x-role: admin", "x-role: user", "x-user: alice", "x_user: alice", "x-api-key: k", "x_api_key: k", "authorization: Bearer a",
  "authorization: Basic YTpi", "cookie: a=1", "cookie: b=2", "te: trailers", "x-forwarded-for: 1.2.3.4", "forwarded: for=1.2.3.4",
  "x-ratelimit-limit: 1", "accept: text/html", "accept: */*", "mcp-session-id: 1", "content-type: text/plain", "x-empty:", "x-request-id: r1",
]; // biome-ignore format: a table
const ODD_LINES = [
  "host: b.test", "authorization: Bearer b", "expect: nonsense", "te: gzip", "connection: keep-alive, x-role", "connection: close, x-user",
  "keep-alive: 1", "proxy-connection: keep-alive", "upgrade: h2c", CONTROLLED, "x-long: ", "x bad: 1", "x-role: \u00e9", "transfer_encoding: x",
]; // biome-ignore format: a table

function headCase(random: Random): HeadCase {
  const lines = random.list(4, () => random.pick(LINES));
  if (random.oneIn(5))
    lines.push(
      random.pick(ODD_LINES).replace("x-long: ", `x-long: ${"a".repeat(random.pick([6_000, 9_000, 16_000, 16_500]))}`),
    );
  // Node's client sends these fields once.
  const unique = lines.filter(
    (line, i) => !line.startsWith("te:") || lines.findIndex((other) => other.startsWith("te:")) === i,
  );
  if (random.oneIn(60)) for (let i = random.pick([80, 101]); i > 0; i--) unique.push(`x-${i}: 1`);
  return {
    method: random.oneIn(12) ? random.pick(ODD_METHODS) : random.pick(METHODS),
    target: random.oneIn(12)
      ? random.pick(TARGETS)
      : random.oneIn(3)
        ? targetOf(random)
        : random.pick(["/", "/a/b?x=1", "/v1/%7Ex"]),
    host: random.oneIn(15) ? random.pick(ODD_HOSTS) : random.pick(HOSTS),
    lines: unique,
  };
}

function bytesOf({ method, target, host, lines }: HeadCase, isProxied: boolean): Buffer {
  const named = isProxied && target.startsWith("/") ? `http://${host}${target}` : target;
  return Buffer.from(`${[`${method} ${named} HTTP/1.1`, `host: ${host}`, ...lines].join("\r\n")}\r\n\r\n`, "latin1");
}

function fieldsOf({ method, target, host, lines }: HeadCase): OutgoingHttpHeaders {
  const fields: Record<string, string | string[]> = { ":method": method, ":path": target, ":authority": host };
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon);
    const before = fields[name];
    fields[name] = before === undefined ? line.slice(colon + 1).trim() : [before, line.slice(colon + 1).trim()].flat();
  }
  return fields;
}

/** One HTTP/2 connection, opened again when the gateway has closed it. */
class Http2Client {
  readonly #open: () => ClientHttp2Session;
  #session: ClientHttp2Session | undefined = undefined;

  constructor(open: () => ClientHttp2Session) {
    this.#open = open;
  }

  send(one: HeadCase): Promise<Verdict> {
    if (this.#session === undefined || this.#session.closed || this.#session.destroyed) {
      this.#session = this.#open();
      this.#session.on("error", () => undefined);
    }
    const session = this.#session;
    return new Promise((resolve) => {
      try {
        const stream = session.request(fieldsOf(one), { endStream: true });
        let answer: { status: number; error: string | undefined } | undefined;
        let body = "";
        stream.on("response", (fields) => {
          answer = { status: Number(fields[":status"]), error: fields["x-gateway-error"] as string | undefined };
        });
        stream.on("data", (chunk: Buffer) => {
          body += chunk.toString();
        });
        stream.on("error", () => undefined);
        stream.on("close", () => resolve(answer === undefined ? "reset" : { ...answer, body }));
      } catch {
        resolve("reset");
      }
    });
  }

  close(): void {
    this.#session?.destroy();
  }
}

interface Client {
  send(door: Door, one: HeadCase): Promise<Verdict>;
  close(): void;
}

function createClient(gateway: TestGateway, backend: string): Client {
  const port = (door: string): number => gateway.port(`${door}-${backend}`);
  const tls = (): Socket =>
    connectTls({ port: port("tls"), host: "127.0.0.1", servername: "localhost", ca: certificates.root });
  const admin = Number(new URL(gateway.adminUrl).port);
  const h1: Readonly<Partial<Record<Door, Connection>>> = {
    h1: new Connection(() => plainSocket(port("plain"))),
    tls: new Connection(tls),
    "proxy protocol": new Connection(
      () => plainSocket(port("proxied")),
      "PROXY TCP4 203.0.113.9 127.0.0.1 40000 80\r\n",
    ),
    "forward proxy": new Connection(() => plainSocket(port("forward"))),
    ui: new Connection(() => plainSocket(gateway.port("ui"))),
    admin: new Connection(() => plainSocket(admin)),
  };
  const h2: Readonly<Partial<Record<Door, Http2Client>>> = {
    h2c: new Http2Client(() => connectHttp2(`http://127.0.0.1:${port("plain")}`)),
    h2: new Http2Client(() => connectHttp2(`https://localhost:${port("tls")}`, { ca: certificates.root })),
  };
  return {
    send: (door, one) =>
      h1[door]?.send(bytesOf(one, door === "forward proxy"), one.method === "HEAD") ??
      h2[door]?.send(one) ??
      Promise.reject(new Error(door)),
    close() {
      for (const client of [...Object.values(h1), ...Object.values(h2)]) client.close();
    },
  };
}

export async function runHeads(options: DifferentialOptions): Promise<DifferentialReport> {
  const report: DifferentialReport = { findings: [], skipped: [], counts: new Map(), seconds: 0 };
  const opened = await Promise.all(options.backends.map(openReportingBackend));
  const backends = opened.filter((one) => typeof one !== "string");
  report.skipped.push(...opened.filter((one) => typeof one === "string"));
  if (backends.length === 0) return report;
  const gateway = await startGateway(configFor(backends), { files });
  const startedMs = performance.now();
  try {
    await Promise.all(
      backends.map(async ({ name }, i) => {
        const random = new Random(options.seed + i);
        let left = options.count;
        const worker = async (): Promise<void> => {
          const client = createClient(gateway, name);
          while (left > 0 && report.findings.length < 20) {
            left -= 1;
            await judge(headCase(random), client, report);
          }
          client.close();
        };
        await Promise.all(Array.from({ length: options.connections }, worker));
      }),
    );
    report.seconds = (performance.now() - startedMs) / 1000;
  } finally {
    await gateway.close();
    await Promise.all(backends.map((backend) => backend.close()));
  }
  return report;
}

function configFor(backends: readonly ReportingBackend[]): string {
  const listeners = backends.flatMap(({ name }) => [
    `plain-${name}: { port: 0 }`,
    `tls-${name}: { port: 0, ${TLS} }`,
    `proxied-${name}: { port: 0, proxyProtocol: {} }`,
    `forward-${name}: { port: 0, address: 127.0.0.1, forwardProxy: true }`,
  ]);
  const routes = backends.map(
    ({ name, host }) =>
      `{ gateways: [plain-${name}, tls-${name}, proxied-${name}, forward-${name}], backends: [{ host: "${host}" }] }`,
  );
  return `
config: { logging: { level: "error,access=off" }, trustedProxies: [127.0.0.1] }
gateways: { ui: { port: 0, address: 127.0.0.1 }, ${listeners.join(", ")} }
ui: { gateways: ui }
routes: [${routes.join(", ")}]
`;
}

async function judge(one: HeadCase, client: Client, { findings, counts }: DifferentialReport): Promise<void> {
  const count = (outcome: string): void => void counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  const expected = (await client.send("h1", one)) as Answer;
  count(`h1 ${expected.error ?? "accepted"}`);
  const verdicts = await Promise.all(DOORS.map((door) => client.send(door, one)));
  for (const [i, door] of DOORS.entries()) {
    const found = verdicts[i] as Verdict;
    if (isSame(door, expected, found)) {
      count(`${door} same`);
      continue;
    }
    const row = await rowOf(door, one, expected, found, client);
    if (row !== undefined) count(`${door} differs by ${row.rfc}: ${row.what}`);
    else findings.push(`${door}: ${JSON.stringify(one).slice(0, 600)}: ${shown(expected)}, but ${shown(found)}`);
  }
}

async function rowOf(door: Door, one: HeadCase, expected: Answer, found: Verdict, client: Client) {
  for (const row of HEAD_ROWS) {
    if (!row.doors.includes(door) || !row.applies(one, expected, found)) continue;
    if (row.alike === undefined || isSame(door, (await client.send("h1", row.alike(one))) as Answer, found)) return row;
  }
  return undefined;
}

function isSame(door: Door, expected: Answer, found: Verdict): boolean {
  if (found === "reset") return false;
  const isRejected = HEAD_ERRORS.has(expected.error ?? "");
  // Node's parser may reject a head before the rules do, and closes the connection.
  if (door === "admin") {
    if (isRejected) return found.status === expected.status || found.status === 0;
    // The method is judged after the rest of the head there.
    return expected.status === 405
      ? found.status === 0 || found.status >= 400
      : ![0, 400, 417, 431].includes(found.status);
  }
  if (door === "ui" && !isRejected) return !HEAD_ERRORS.has(found.error ?? "");
  const text = ({ body }: Answer): string => JSON.stringify(readingIn(body) ?? body);
  return found.status === expected.status && found.error === expected.error && text(found) === text(expected);
}

function shown(verdict: Verdict): string {
  return verdict === "reset" ? "reset" : `${verdict.status} ${verdict.body.slice(0, 300)}`;
}
