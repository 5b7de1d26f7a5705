/**
 * Head equivalence: a generated head goes through every way into the gateway, and each must come to the verdict of plain
 * HTTP/1.1, with the same text, and the backend must read the same request. HTTP/2 heads are sent as frames, so that every
 * head arrives, also a malformed one. Differences are rows of a table, each with the section of the RFC that requires it.
 */
import type { Socket } from "node:net";
import { connect as connectTls, createSecureContext } from "node:tls";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { files, TLS } from "../support/http2/peers.ts";
import { RawHttp2Client, type StreamReset } from "../support/http2/raw-client.ts";
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

/** A response, whose status is 0 if the connection was closed without one, or a stream error. */
type Verdict = Answer | StreamReset;

/** The count of heads that were sent again because a connection failed. */
export const REPEATED = "repeated after a failed connection";

/** The verdicts of the first one are those that the others must come to. */
const DOORS: readonly Door[] = ["h1", "tls", "proxy protocol", "forward proxy", "h2c", "h2", "ui", "admin"];
const HTTP2: readonly Door[] = ["h2c", "h2"];

/** Rejections by the rules for heads. The UI and the admin interface have other reasons to reject a request, too. */
const HEAD_ERRORS = new Set(["bad_request", "too_many_headers", "expectation_failed", "method_not_allowed"]);

/** A response to a rejected head, or a stream error without a response. */
type Rejection = { readonly status: number; readonly text?: string } | StreamReset;

interface Row {
  readonly what: string;
  readonly rfc: string;
  readonly doors: readonly Door[];
  applies(one: HeadCase): boolean;
  /** The only verdict that the row allows, or the head whose verdict over plain HTTP/1.1 it must be. */
  readonly verdict: Rejection | ((one: HeadCase) => HeadCase);
}

const PROTOCOL_ERROR: StreamReset = { reset: 1 };
const MAX_ADMIN_HEAD_BYTES = 8 * 1024;

/**
 * The differences that RFCs require. The first row that applies to a head decides. With each, the head is rejected, or
 * the backend reads the same method, path, host, and credentials.
 */
export const HEAD_ROWS: readonly Row[] = [
  {
    what: "a connection-specific field makes an HTTP/2 request malformed",
    rfc: "RFC 9113 section 8.2.2",
    doors: HTTP2,
    applies: ({ lines }) =>
      lines.some((line) =>
        /^(?:connection|keep-alive|proxy-connection|upgrade|transfer-encoding):|^te:(?!\s*trailers$)/.test(line),
      ),
    verdict: PROTOCOL_ERROR,
  },
  {
    what: "the path of an HTTP/2 request begins with a slash, or is * with OPTIONS",
    rfc: "RFC 9113 section 8.3.1",
    doors: HTTP2,
    applies: ({ method, target }) => !target.startsWith("/") && !(target === "*" && method === "OPTIONS"),
    verdict: PROTOCOL_ERROR,
  },
  {
    what: "the authority of an HTTP/2 request is not empty and contains only the characters of authorities",
    rfc: "RFC 3986 section 3.2",
    doors: HTTP2,
    applies: ({ host }) => /^$|[^!$%&'()*+,\-.0-9:;=@A-Z[\]_a-z~]/.test(host),
    verdict: PROTOCOL_ERROR,
  },
  {
    what: "an HTTP/2 request is read without fields that have invalid characters, so no backend receives them",
    rfc: "RFC 9113 section 8.2.1",
    doors: HTTP2,
    applies: ({ lines }) => lines.some(isInvalidField),
    verdict: (one) => ({ ...one, lines: one.lines.filter((line) => !isInvalidField(line)) }),
  },
  {
    what: "a host with a space ends the target of a request to a proxy",
    rfc: "RFC 9112 section 3.2.2",
    doors: ["forward proxy"],
    applies: ({ host }) => host.includes(" "),
    verdict: { status: 400, text: "bad request: the HTTP version is not 1.0 or 1.1" },
  },
  {
    what: "the target of a request to a proxy contains the host, and is read before the Host header",
    rfc: "RFC 9112 section 3.2.2",
    doors: ["forward proxy"],
    applies: ({ host }) => /^$|[^A-Za-z0-9._~:@[\]-]/.test(host),
    verdict: { status: 400, text: "bad request: the request target is malformed" },
  },
  {
    what: "the admin interface reads the form of the target before the size of the head",
    rfc: "RFC 9112 section 3.2",
    doors: ["admin"],
    applies: (one) => isTooLargeForAdmin(one) && !/^(?:[/*]|[a-z]+:\/\/)/i.test(one.target),
    verdict: { status: 400 },
  },
  {
    what: "the admin interface accepts heads up to 8 KiB",
    rfc: "RFC 6585 section 5",
    doors: ["admin"],
    applies: isTooLargeForAdmin,
    verdict: { status: 431 },
  },
];

const CONTROLLED = "x-bad: a\u0001b";
const SPACED = "x bad: 1";
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
  "keep-alive: 1", "proxy-connection: keep-alive", "upgrade: h2c", CONTROLLED, "x-long: ", SPACED, "x-role: \u00e9", "transfer_encoding: x",
]; // biome-ignore format: a table

function headCase(random: Random): HeadCase {
  const lines = random.list(4, () => random.pick(LINES));
  if (random.oneIn(5))
    lines.push(
      random.pick(ODD_LINES).replace("x-long: ", `x-long: ${"a".repeat(random.pick([6_000, 9_000, 16_000, 16_500]))}`),
    );
  if (random.oneIn(60)) for (let i = random.pick([80, 101]); i > 0; i--) lines.push(`x-${i}: 1`);
  return {
    method: random.oneIn(12) ? random.pick(ODD_METHODS) : random.pick(METHODS),
    target: random.oneIn(12)
      ? random.pick(TARGETS)
      : random.oneIn(3)
        ? targetOf(random)
        : random.pick(["/", "/a/b?x=1", "/v1/%7Ex"]),
    host: random.oneIn(15) ? random.pick(ODD_HOSTS) : random.pick(HOSTS),
    lines,
  };
}

function bytesOf({ method, target, host, lines }: HeadCase, isProxied: boolean): Buffer {
  const named = isProxied && target.startsWith("/") ? `http://${host}${target}` : target;
  return Buffer.from(`${[`${method} ${named} HTTP/1.1`, `host: ${host}`, ...lines].join("\r\n")}\r\n\r\n`, "latin1");
}

function fieldsOf({ method, target, host, lines }: HeadCase, scheme: string): [name: string, value: string][] {
  const pseudo: [string, string][] = [
    [":method", method],
    [":scheme", scheme],
    [":authority", host],
    [":path", target],
  ];
  return [
    ...pseudo,
    ...lines.map((line): [string, string] => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon), line.slice(colon + 1).trim()];
    }),
  ];
}

interface Client {
  send(door: Door, one: HeadCase): Promise<Verdict>;
  close(): void;
}

function createClient(gateway: TestGateway, backend: string): Client {
  const port = (door: string): number => gateway.port(`${door}-${backend}`);
  const admin = Number(new URL(gateway.adminUrl).port);
  const connection = (open: () => Socket, preface = ""): Connection => new Connection(open, preface, false);
  const h1: Readonly<Partial<Record<Door, Connection>>> = {
    h1: connection(() => plainSocket(port("plain"))),
    tls: connection(tlsSockets(port("tls"), "http/1.1")),
    "proxy protocol": connection(() => plainSocket(port("proxied")), "PROXY TCP4 203.0.113.9 127.0.0.1 40000 80\r\n"),
    "forward proxy": connection(() => plainSocket(port("forward"))),
    ui: connection(() => plainSocket(gateway.port("ui"))),
    admin: connection(() => plainSocket(admin)),
  };
  const h2: Readonly<Partial<Record<Door, RawHttp2Client>>> = {
    h2c: new RawHttp2Client(() => plainSocket(port("plain"))),
    h2: new RawHttp2Client(tlsSockets(port("tls"), "h2")),
  };
  return {
    async send(door, one) {
      const client = h1[door];
      if (client !== undefined) {
        const answer = await client.send(bytesOf(one, door === "forward proxy"), one.method === "HEAD");
        // Node closes an idle connection of the admin interface after 5 s, perhaps while the next head arrives.
        if (door === "admin") client.close();
        return answer;
      }
      const found = await h2[door]?.send(fieldsOf(one, door === "h2" ? "https" : "http"));
      if (found === undefined) return { status: 0, error: undefined, body: "" };
      if ("reset" in found) return found;
      const { fields, body } = found;
      return { status: Number(fields.get(":status")), error: fields.get("x-gateway-error"), body };
    },
    close() {
      for (const client of [...Object.values(h1), ...Object.values(h2)]) client.close();
    },
  };
}

/** Sessions are resumed, because a head that is rejected closes its connection. */
function tlsSockets(port: number, protocol: string): () => Socket {
  const secureContext = createSecureContext({ ca: certificates.root });
  let session: Buffer | undefined;
  return () => {
    const socket = connectTls({
      port,
      host: "127.0.0.1",
      servername: "localhost",
      secureContext,
      ALPNProtocols: [protocol],
      session,
    });
    socket.on("session", (ticket) => {
      session = ticket;
    });
    return socket.setNoDelay(true);
  };
}

export async function runHeads(options: DifferentialOptions): Promise<DifferentialReport> {
  const report: DifferentialReport = { findings: [], skipped: [], counts: new Map(), seconds: 0 };
  const opened = await Promise.all(options.backends.map(openReportingBackend));
  const backends = opened.filter((one) => typeof one !== "string");
  report.skipped.push(...opened.filter((one) => typeof one === "string"));
  if (backends.length === 0) return report;
  const gateway = await startGateway(configFor(backends), { files, listenerLimits: PATIENT });
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
    const repeated = report.counts.get(REPEATED) ?? 0;
    if (repeated > Math.max(1, Math.floor((options.count * backends.length) / 10_000)))
      report.findings.push(`${repeated} heads were sent again because connections failed`);
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

/** A machine that stalls does not end connections. */
const PATIENT = { headersTimeoutMs: 3_600_000, silentPeerMs: 3_600_000 };

async function judge(one: HeadCase, client: Client, { counts, findings }: DifferentialReport): Promise<void> {
  const count = (outcome: string): void => void counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  const send = async (door: Door, sent: HeadCase): Promise<Verdict> => {
    const found = await client.send(door, sent);
    if (!isTransportFailure(found)) return found;
    count(`${REPEATED}: ${door} ${shown(found)}`);
    count(REPEATED);
    return client.send(door, sent);
  };
  const verdicts = await Promise.all(DOORS.map((door) => send(door, one)));
  const [expected] = verdicts as [Answer];
  count(`h1 ${expected.error ?? (expected.status === 200 ? "accepted" : expected.status)}`);
  for (const [i, door] of DOORS.entries()) {
    const found = verdicts[i] as Verdict;
    if (isTransportFailure(found)) {
      findings.push(`${door}: ${shownHead(one)}: ${shown(found)}`);
    } else if (isSame(door, expected, found)) {
      count(`${door} same`);
    } else {
      const row = HEAD_ROWS.find((row) => row.doors.includes(door) && row.applies(one));
      if (row !== undefined && (await isAllowed(row, door, one, found, send)))
        count(`${door} differs by ${row.rfc}: ${row.what}`);
      else findings.push(`${door}: ${shownHead(one)}: ${shown(expected)}, but ${shown(found)}`);
    }
  }
}

async function isAllowed(
  { verdict }: Row,
  door: Door,
  one: HeadCase,
  found: Verdict,
  send: (door: Door, one: HeadCase) => Promise<Verdict>,
): Promise<boolean> {
  if (typeof verdict === "function") return isSame(door, (await send("h1", verdict(one))) as Answer, found);
  if ("reset" in verdict) return "reset" in found && found.reset === verdict.reset;
  if ("reset" in found || found.status !== verdict.status) return false;
  return one.method === "HEAD" || verdict.text === undefined || found.body === verdict.text;
}

function isTooLargeForAdmin(one: HeadCase): boolean {
  return bytesOf(one, false).length > MAX_ADMIN_HEAD_BYTES;
}

function isInvalidField(line: string): boolean {
  return line === CONTROLLED || line === SPACED;
}

function isSame(door: Door, expected: Answer, found: Verdict): boolean {
  if ("reset" in found) return false;
  const isRejected = HEAD_ERRORS.has(expected.error ?? "");
  // The admin interface has no error header, and its own endpoints.
  if (door === "admin") return isRejected ? found.status === expected.status : ![400, 417, 431].includes(found.status);
  if (door === "ui" && !isRejected) return !HEAD_ERRORS.has(found.error ?? "");
  const text = ({ body }: Answer): string => JSON.stringify(readingIn(body) ?? body);
  return found.status === expected.status && found.error === expected.error && text(found) === text(expected);
}

/** No verdict: the connection to the gateway or to the backend failed. */
function isTransportFailure(found: Verdict): boolean {
  return "status" in found && (found.status === 0 || (found.status >= 502 && found.status <= 504));
}

function shown(verdict: Verdict): string {
  return "reset" in verdict ? `reset with code ${verdict.reset}` : `${verdict.status} ${verdict.body.slice(0, 300)}`;
}

function shownHead(one: HeadCase): string {
  return JSON.stringify(one).slice(0, 600);
}
