/**
 * The differential test: a gateway denies by rules, real backends report what they read, and the same rules over that
 * report must come to the same verdict. A request that reaches the backend must not be one that the rules deny as the
 * backend reads it. A request that is denied goes to an open listener too, and must be one that the rules deny. A request
 * that the gateway refuses as malformed or ambiguous has no verdict.
 */
import { connect, type Socket } from "node:net";
import { startGateway } from "../support/gateway.ts";
import { Random } from "../support/random.ts";
import { type BackendName, openReportingBackend, type Reading, type ReportingBackend } from "./backends.ts";
import { bytesOf, type DifferentialCase, differentialCase, KNOWN, RULES } from "./cases.ts";

export interface DifferentialOptions {
  readonly backends: readonly BackendName[];
  /** Requests for each backend. */
  readonly count: number;
  readonly seed: number;
  readonly connections: number;
}

export interface DifferentialReport {
  readonly findings: string[];
  /** Reasons why a backend did not take part. */
  readonly skipped: string[];
  /** `node allowed`, `go refused`, `python known: …` → requests. */
  readonly counts: Map<string, number>;
  /** How long the requests took, without the start of the backends. */
  seconds: number;
}

const MAX_FINDINGS = 20;
const ASSERTED_USER = "alice";

export async function runDifferential(options: DifferentialOptions): Promise<DifferentialReport> {
  const report: DifferentialReport = { findings: [], skipped: [], counts: new Map(), seconds: 0 };
  const opened = await Promise.all(options.backends.map(openReportingBackend));
  const backends = opened.filter((one) => typeof one !== "string");
  report.skipped.push(...opened.filter((one) => typeof one === "string"));
  if (backends.length === 0) return report;
  const gateway = await startGateway(configFor(backends));
  const startedMs = performance.now();
  try {
    await Promise.all(
      backends.map(async ({ name }, i) => {
        const random = new Random(options.seed + i);
        let left = options.count;
        const next = (): DifferentialCase | undefined => {
          if (left === 0 || report.findings.length >= MAX_FINDINGS) return undefined;
          left -= 1;
          return differentialCase(random);
        };
        const worker = async (): Promise<void> => {
          const guarded = new Connection(() => plainSocket(gateway.port(`guarded-${name}`)));
          const open = new Connection(() => plainSocket(gateway.port(`open-${name}`)));
          for (let one = next(); one !== undefined; one = next()) await judge(name, one, guarded, open, report);
          guarded.close();
          open.close();
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
  const asserted = `transformations: { request: { set: { x-user: '"${ASSERTED_USER}"' } } }`;
  const denied = JSON.stringify(RULES.map(({ deny }) => ({ deny })));
  const listeners = backends.flatMap(({ name }) => [`guarded-${name}: { port: 0 }`, `open-${name}: { port: 0 }`]);
  const routes = backends.flatMap(({ name, host }) => [
    `{ gateways: [guarded-${name}], policies: { authorization: { rules: ${denied} }, ${asserted} }, backends: [{ host: "${host}" }] }`,
    `{ gateways: [open-${name}], policies: { ${asserted} }, backends: [{ host: "${host}" }] }`,
  ]);
  return `
config: { logging: { level: "warn,access=off" } }
gateways: { ${listeners.join(", ")} }
routes: [${routes.join(", ")}]
`;
}

async function judge(
  backend: BackendName,
  one: DifferentialCase,
  guarded: Connection,
  open: Connection,
  { findings, counts }: DifferentialReport,
): Promise<void> {
  const bytes = bytesOf(one);
  const isHead = one.method === "HEAD";
  const { status, body } = await guarded.send(bytes, isHead);
  const count = (outcome: string): void =>
    void counts.set(`${backend} ${outcome}`, (counts.get(`${backend} ${outcome}`) ?? 0) + 1);
  const differs = (verdict: "allowed" | "denied", what: string, reading: Reading): void => {
    const known = KNOWN.find(
      (known) => known.verdict === verdict && known.backends.includes(backend) && known.applies(one),
    );
    if (known) count(`known: ${known.what}`);
    else
      findings.push(
        `${backend}: ${verdict} ${what}: ${JSON.stringify(bytes.toString("latin1"))} was read as ${JSON.stringify(reading)}`,
      );
  };
  if (status === 200) {
    count("allowed");
    const reading = readingIn(body);
    if (reading === undefined) return;
    const rule = RULES.find(({ denies }) => denies(reading));
    if (rule) differs("allowed", `although ${rule.deny}`, reading);
    else if (reading.user !== ASSERTED_USER)
      differs("allowed", "with another x-user than the gateway asserts", reading);
  } else if (status === 403) {
    count("denied");
    const reading = readingIn((await open.send(bytes, isHead)).body);
    if (reading !== undefined && !RULES.some(({ denies }) => denies(reading)))
      differs("denied", "although no rule applies", reading);
  } else if (status >= 400 && status < 500) count("refused");
  else findings.push(`${backend}: status ${status}: ${JSON.stringify(bytes.toString("latin1"))}`);
}

/** Undefined where there is no report: an answer to HEAD, or one that is not the backend's. */
export function readingIn(body: string): Reading | undefined {
  return body.startsWith("{") && body.includes('"query"') ? (JSON.parse(body) as Reading) : undefined;
}

export function plainSocket(port: number): Socket {
  return connect({ port, host: "127.0.0.1", noDelay: true });
}

export interface Answer {
  readonly status: number;
  readonly body: string;
  /** The `x-gateway-error` header. */
  readonly error: string | undefined;
}

/** One connection at a time, opened again when the gateway has closed it. Requests are written as they are. */
export class Connection {
  readonly #openSocket: () => Socket;
  readonly #preface: string;
  readonly #sendsAgain: boolean;
  #socket: Socket | undefined = undefined;

  /**
   * `preface` is sent before the first request, for example a PROXY protocol header. `sendsAgain` opens a new connection
   * if a reused one is closed without a response.
   */
  constructor(openSocket: () => Socket, preface = "", sendsAgain = true) {
    this.#openSocket = openSocket;
    this.#preface = preface;
    this.#sendsAgain = sendsAgain;
  }

  close(): void {
    this.#socket?.destroy();
    this.#socket = undefined;
  }

  send(bytes: Buffer, isHead: boolean): Promise<Answer> {
    const isReused = this.#socket !== undefined;
    const preface = isReused ? "" : this.#preface;
    const socket = this.#socket ?? this.#open();
    return new Promise((resolve) => {
      let text = "";
      const done = (answer: Answer, isClosing: boolean): void => {
        socket.removeAllListeners();
        socket.on("error", () => undefined);
        if (isClosing) this.close();
        else socket.once("close", () => this.#forget(socket));
        resolve(answer);
      };
      socket.removeAllListeners();
      socket.on("error", () => undefined);
      socket.on("data", (chunk: Buffer) => {
        text += chunk.toString("latin1");
        const end = text.indexOf("\r\n\r\n");
        if (end < 0) return;
        const head = text.slice(0, end);
        const length = isHead ? 0 : Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0);
        if (text.length < end + 4 + length) return;
        const body = Buffer.from(text.slice(end + 4), "latin1").toString();
        const error = /^x-gateway-error: (.*)$/im.exec(head)?.[1];
        done({ status: Number(head.slice(9, 12)), body, error }, /^connection: close/im.test(head));
      });
      socket.on("close", () => {
        this.#forget(socket);
        // The server may have closed an idle connection at this moment.
        if (this.#sendsAgain && isReused && text === "") {
          resolve(this.send(bytes, isHead));
          return;
        }
        // A closed connection without a response has the status 0.
        resolve({ status: 0, body: text, error: undefined });
      });
      socket.write(Buffer.concat([Buffer.from(preface), bytes]));
    });
  }

  #open(): Socket {
    const socket = this.#openSocket();
    this.#socket = socket;
    return socket;
  }

  #forget(socket: Socket): void {
    if (this.#socket === socket) this.#socket = undefined;
  }
}
