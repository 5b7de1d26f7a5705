/**
 * Lists every input that a peer can send: the reader that reads it, its limits, and the account that its memory is
 * charged to. Only this file can create an entry, and readers require an entry, so an input without limits cannot exist.
 * What the gateway wrote itself, for example to a file or another thread, is listed too.
 */

import { ExpectedError } from "./errors.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

export type Reader =
  | "AWS event stream"
  | "CEL"
  | "DNS"
  | "HTTP body"
  | "HTTP head"
  | "JSON"
  | "JWT"
  | "PEM"
  | "PROXY header"
  | "PostgreSQL"
  | "Redis"
  | "SQLite"
  | "TLS hello"
  | "WebSocket"
  | "XML"
  | "YAML"
  | "compressed"
  | "event stream"
  | "form"
  | "lines"
  | "multipart"
  | "protobuf"
  | "regular expression"
  | "structured clone";

/** A limit that the configuration sets, for example `mcp.maxMessageBytes`. The ceiling is its largest valid value. */
export interface ConfiguredLimit {
  readonly setting: string;
  readonly ceiling: number;
}

export type Limit = number | ConfiguredLimit;

export interface InputLimits {
  /** The bytes, or characters of text, of one input. */
  readonly bytes: Limit;
  /** Values and names, fields, lines, keys, or records. Without it, `bytes` bounds them. */
  readonly items?: Limit;
  readonly depth?: Limit;
  /** Elements that are open at the same time, for example tool calls of a stream. */
  readonly open?: Limit;
  /** Bytes of a decompressed output, beyond the first 256 KiB, for each compressed byte. */
  readonly ratio?: number;
}

/**
 * `fixed: …` names the bound of an input whose memory is not charged: its size, and how many exist at the same time.
 */
export type Account =
  | "body pool"
  | "cache"
  | "history"
  | "message pool"
  | "open streams"
  | "session"
  | "store"
  | "stream"
  | `fixed: ${string}`;

/**
 * The parser takes seconds for some MiB of open brackets, so every JSON input has a limit of levels. Texts that are part
 * of a message with a limit of its own, and texts that are only scanned, state that they have none.
 */
const JSON_DEPTH = 1_000;
const NO_DEPTH = Number.POSITIVE_INFINITY;

let createInput: <R extends Reader>(id: string, reader: R, limits: InputLimits, account: Account) => PeerInput<R>;

export class PeerInput<R extends Reader = Reader> {
  /** `<peer>/<message>`, for example `mcp-server/stdio-message`. */
  readonly id: string;
  readonly reader: R;
  readonly limits: InputLimits;
  readonly account: Account;
  /** The limits as numbers, with the ceiling in place of a setting. A limit that does not exist is infinite. */
  readonly maxBytes: number;
  readonly maxItems: number;
  readonly maxDepth: number;
  readonly maxOpen: number;
  readonly maxRatio: number;
  /** The private field keeps other objects from being assignable to this class. */
  readonly #peer: string;
  #smaller: PeerInput<R> | undefined = undefined;

  static {
    createInput = (id, reader, limits, account) => new PeerInput(id, reader, limits, account);
  }

  private constructor(id: string, reader: R, limits: InputLimits, account: Account) {
    this.id = id;
    this.reader = reader;
    this.limits = reader === "JSON" && limits.depth === undefined ? { ...limits, depth: JSON_DEPTH } : limits;
    this.account = account;
    this.maxBytes = ceilingOf(limits.bytes);
    this.maxItems = ceilingOf(limits.items);
    this.maxDepth = ceilingOf(this.limits.depth);
    this.maxOpen = ceilingOf(limits.open);
    this.maxRatio = ceilingOf(limits.ratio);
    this.#peer = id.slice(0, id.indexOf("/"));
  }

  get peer(): string {
    return this.#peer;
  }

  /** Returns the same input with the value of its setting, or with a smaller limit. The last result is reused. */
  upTo(bytes: number): PeerInput<R> {
    if (bytes > this.maxBytes) throw new RangeError(`${this.id}: ${bytes} bytes exceed the limit of ${this.maxBytes}`);
    if (bytes === this.maxBytes) return this;
    if (this.#smaller?.maxBytes !== bytes)
      this.#smaller = new PeerInput(this.id, this.reader, { ...this.limits, bytes }, this.account);
    return this.#smaller;
  }

  /** Returns the same input with a smaller limit of items. */
  upToItems(items: number): PeerInput<R> {
    return new PeerInput(this.id, this.reader, { ...this.limits, items: Math.min(items, this.maxItems) }, this.account);
  }
}

function ceilingOf(limit: Limit | undefined): number {
  return typeof limit === "object" ? limit.ceiling : (limit ?? Number.POSITIVE_INFINITY);
}

/** `form`: the input is within its limits, but is not what the reader reads. */
export type InputProblem = keyof InputLimits | "form";

/** An input that its reader rejects. The message is a predicate without values of the input, for example `is not JSON`. */
export class InputError extends ExpectedError {
  readonly input: PeerInput;
  readonly problem: InputProblem;

  constructor(input: PeerInput, problem: InputProblem, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "InputError";
    this.input = input;
    this.problem = problem;
  }

  /** The input is larger than its entry allows. */
  static tooLarge(input: PeerInput): InputError {
    return new InputError(input, "bytes", `is larger than ${input.maxBytes} bytes`);
  }

  static tooManyItems(input: PeerInput): InputError {
    return new InputError(input, "items", `has more than ${input.maxItems} values and names`);
  }
}

const MAX_REQUEST: Limit = { setting: "mcp.maxRequestBytes", ceiling: 64 * MIB };
const MAX_MESSAGE: Limit = { setting: "mcp.maxMessageBytes", ceiling: 256 * MIB };
const MAX_LLM_BODY: Limit = { setting: "ai.maxBodyBytes", ceiling: 256 * MIB };
const MAX_LLM_TREE: Limit = { setting: "ai.maxTreeBytes", ceiling: 32 * MIB };
const MAX_BUFFER: Limit = { setting: "buffer.request.maxBytes", ceiling: 32 * MIB };
/** A message also has headers. */
const MAX_PROCESSED: Limit = { setting: "extProc.maxBodyBytes", ceiling: 32 * MIB + 256 * KIB };
const MAX_PICKED: Limit = { setting: "endpointPicker.maxBodyBytes", ceiling: 32 * MIB + 256 * KIB };

const ONE_CONNECTION: Account = "fixed: one at a time for each connection";
const ONE_EXCHANGE: Account = "fixed: one at a time for each request";
const ONE_PROVIDER: Account = "fixed: one at a time for each provider";
const ONE_SERVICE_CALL: Account = "fixed: one at a time for each call of the service";
const PART_OF_MESSAGE: Account = "fixed: part of a message that was checked and charged";
const AT_LOAD: Account = "fixed: read once when the configuration is loaded";
const COMMAND: Account = "fixed: read once by a command of gwctl";

/** Even very repetitive texts are below this ratio, and it is close to the largest one of `deflate`. */
const RATIO = 1_000;
/** JSON text and event streams are seldom compressed to less than a fiftieth. */
const TEXT_RATIO = 100;

type Entry =
  | readonly [reader: "compressed", limits: InputLimits & { readonly ratio: number }, account: Account]
  | readonly [reader: Exclude<Reader, "compressed">, limits: Omit<InputLimits, "ratio">, account: Account];

/** Reader, limits, and account of each input. */
const TABLE = {
  "client/proxy-header": ["PROXY header", { bytes: 4 * KIB, items: 64 }, ONE_CONNECTION],
  "client/tls-hello": ["TLS hello", { bytes: 16 * KIB, items: 64 }, ONE_CONNECTION],
  "client/certificate": ["PEM", { bytes: 100 * KIB }, ONE_CONNECTION],
  "client/http1-head": ["HTTP head", { bytes: 16 * KIB, items: 100 }, ONE_CONNECTION],
  "client/http2-head": ["HTTP head", { bytes: 16 * KIB, items: 100, open: 100 }, "open streams"],
  "client/request-framing": ["HTTP body", { bytes: 16 * KIB, items: 100 }, ONE_CONNECTION],
  "client/websocket-frame": ["WebSocket", { bytes: 14 }, ONE_CONNECTION],
  "client/request-body": ["HTTP body", { bytes: MAX_BUFFER }, "body pool"],
  "client/expression-body": ["JSON", { bytes: 2 * MIB }, "body pool"],
  "client/expression-json": ["JSON", { bytes: 4 * MIB, items: 100_000 }, ONE_EXCHANGE],
  "client/expression-text": ["CEL", { bytes: 8 * MIB, items: 1_000_000, depth: 128 }, ONE_EXCHANGE],
  "client/computed-pattern": ["regular expression", { bytes: 512 }, ONE_EXCHANGE],
  "client/query": ["form", { bytes: 64 * KIB }, ONE_EXCHANGE],
  "client/token": ["JWT", { bytes: 8 * KIB }, ONE_EXCHANGE],
  "client/login-form": ["form", { bytes: 64 * KIB, items: 1_000 }, "body pool"],
  "client/login-state": ["JSON", { bytes: 16 * KIB }, ONE_EXCHANGE],
  "client/registration": ["JSON", { bytes: 64 * KIB, depth: 16 }, "body pool"],
  "client/metadata-document": ["JSON", { bytes: 64 * KIB }, "fixed: 256 documents"],
  "client/mcp-message": ["JSON", { bytes: MAX_REQUEST, items: 60_000, depth: 64 }, "body pool"],
  "client/mcp-part": ["JSON", { bytes: MAX_REQUEST, items: 60_000, depth: 64 }, PART_OF_MESSAGE],
  "client/mcp-session-id": ["compressed", { bytes: 256 * KIB, ratio: RATIO }, ONE_EXCHANGE],
  "client/mcp-cursor": ["JSON", { bytes: MIB }, ONE_EXCHANGE],
  "client/mcp-event-id": ["JSON", { bytes: KIB }, ONE_EXCHANGE],
  "client/a2a-message": ["JSON", { bytes: 4 * MIB, items: 60_000, depth: 64 }, "body pool"],
  "client/llm-request": ["JSON", { bytes: MAX_LLM_BODY, depth: 128 }, "body pool"],
  "client/llm-request-tree": ["JSON", { bytes: MAX_LLM_TREE, items: 60_000, depth: 128 }, "body pool"],
  "client/llm-option": ["JSON", { bytes: 64 * KIB }, PART_OF_MESSAGE],
  "client/charged-body": ["JSON", { bytes: MAX_LLM_BODY, depth: NO_DEPTH }, "body pool"],
  "client/llm-form": ["multipart", { bytes: MAX_LLM_BODY, items: 256 }, "body pool"],
  "client/llm-tool-arguments": ["JSON", { bytes: MAX_LLM_TREE, items: 60_000, depth: 128 }, "body pool"],
  "client/llm-tool-result": ["JSON", { bytes: MAX_LLM_TREE, items: 60_000, depth: 128 }, "body pool"],
  "client/recorded-body": ["JSON", { bytes: 2 * MIB, items: 50_000 }, "body pool"],

  "backend/http1-head": ["HTTP head", { bytes: 32 * KIB, items: 16 }, ONE_CONNECTION],
  "backend/http2-head": ["HTTP head", { bytes: 64 * KIB, items: 256 }, "open streams"],
  "backend/response-framing": ["HTTP body", { bytes: 16 * KIB, items: 100 }, ONE_CONNECTION],
  "backend/response-body": ["HTTP body", { bytes: 2 * MIB }, "stream"],
  "backend/websocket-frame": ["WebSocket", { bytes: 14 }, ONE_CONNECTION],
  "backend/certificate": ["PEM", { bytes: 100 * KIB }, ONE_CONNECTION],
  "mirror/response": ["JSON", { bytes: 256 * KIB }, "fixed: 16 MiB in each thread"],
  "mirror/compressed-response": ["compressed", { bytes: 256 * KIB, ratio: RATIO }, "fixed: 16 MiB in each thread"],
  "name-server/response": ["DNS", { bytes: 64 * KIB, items: 4_096 }, "fixed: one at a time for each host name"],

  "mcp-server/stdio-lines": ["lines", { bytes: MAX_MESSAGE }, "message pool"],
  "mcp-server/stdio-message": ["JSON", { bytes: MAX_MESSAGE, depth: 256, open: 200_000 }, "message pool"],
  "mcp-server/stdio-log": ["lines", { bytes: KIB }, "fixed: one line for each process"],
  "mcp-server/http-response": ["JSON", { bytes: MAX_MESSAGE, depth: 256, open: 200_000 }, "message pool"],
  "mcp-server/event-stream": ["event stream", { bytes: MAX_MESSAGE }, "message pool"],
  "mcp-server/event": ["JSON", { bytes: MAX_MESSAGE, depth: 256, open: 200_000 }, "message pool"],
  "mcp-server/error": ["JSON", { bytes: 256 * KIB, depth: NO_DEPTH }, PART_OF_MESSAGE],
  "mcp-server/about": ["JSON", { bytes: MIB, items: 20_000, depth: NO_DEPTH }, PART_OF_MESSAGE],
  "mcp-server/part": ["JSON", { bytes: MAX_MESSAGE, depth: NO_DEPTH }, PART_OF_MESSAGE],
  "mcp-server/tool": ["JSON", { bytes: MIB, depth: 256 }, PART_OF_MESSAGE],
  "mcp-server/locked-tool": ["JSON", { bytes: MAX_MESSAGE, items: 20_000, depth: NO_DEPTH }, PART_OF_MESSAGE],
  "mcp-server/tool-list": ["JSON", { bytes: MAX_MESSAGE, depth: NO_DEPTH }, "message pool"],
  "mcp-server/guarded-text": ["regular expression", { bytes: 2 * MIB }, "message pool"],
  "mcp-server/challenge": ["HTTP head", { bytes: 4 * KIB }, ONE_EXCHANGE],
  "mcp-server/login-metadata": ["JSON", { bytes: 256 * KIB, items: 50_000 }, ONE_SERVICE_CALL],
  "mcp-server/login-token": ["JSON", { bytes: 256 * KIB, items: 50_000 }, ONE_SERVICE_CALL],

  "openapi-server/description": ["JSON", { bytes: 16 * MIB, depth: 256 }, ONE_SERVICE_CALL],
  "openapi-server/yaml-description": [
    "YAML",
    { bytes: MIB, items: 500_000, depth: 256 },
    "fixed: one worker for each description",
  ],
  "openapi-server/response": ["JSON", { bytes: MAX_MESSAGE, depth: 256, open: 200_000 }, "message pool"],

  "llm-provider/compressed-response": ["compressed", { bytes: 16 * MIB, ratio: TEXT_RATIO }, "stream"],
  // Reading these does not yield.
  "llm-provider/compressed-content": ["compressed", { bytes: 512 * KIB, ratio: TEXT_RATIO }, ONE_EXCHANGE],
  "llm-provider/compressed-usage": ["compressed", { bytes: 4 * MIB, ratio: TEXT_RATIO }, ONE_EXCHANGE],
  "llm-provider/response": ["JSON", { bytes: 16 * MIB, depth: 256 }, "stream"],
  "llm-provider/guarded-response": ["JSON", { bytes: 4 * MIB, depth: 256 }, "stream"],
  "llm-provider/event-stream": ["event stream", { bytes: 2 * MIB, open: 1_000 }, "stream"],
  "llm-provider/bedrock-stream": ["AWS event stream", { bytes: 2 * MIB, items: 1_000, open: 1_000 }, "stream"],
  "llm-provider/stream-event": ["JSON", { bytes: 2 * MIB, items: 40_000 }, "stream"],
  "llm-provider/usage": ["JSON", { bytes: 64 * KIB }, ONE_EXCHANGE],
  "llm-provider/error": ["JSON", { bytes: MIB, items: 40_000, depth: 256 }, "stream"],
  "llm-provider/token-count": ["JSON", { bytes: MIB, items: 40_000, depth: 256 }, "stream"],
  "llm-provider/tool-arguments": ["JSON", { bytes: MAX_LLM_TREE, items: 60_000, depth: 128 }, "stream"],
  "llm-provider/recorded-content": ["JSON", { bytes: 4 * MIB, items: 100_000 }, ONE_EXCHANGE],
  "llm-provider/models": ["JSON", { bytes: 4 * MIB, depth: 256 }, ONE_PROVIDER],
  "llm-provider/guarded-text": ["regular expression", { bytes: 4 * MIB, open: 4 * KIB }, "stream"],

  "identity-provider/discovery": ["JSON", { bytes: MIB, items: 50_000 }, ONE_PROVIDER],
  "identity-provider/key-set": ["JSON", { bytes: MIB, items: 50_000, open: 100 }, ONE_PROVIDER],
  "identity-provider/token-response": ["JSON", { bytes: 256 * KIB, items: 50_000 }, ONE_SERVICE_CALL],
  "identity-provider/obtained-token": ["JWT", { bytes: 256 * KIB, items: 50_000 }, ONE_SERVICE_CALL],
  "identity-provider/redirect": ["form", { bytes: 64 * KIB }, ONE_SERVICE_CALL],
  "identity-provider/id-token": ["JWT", { bytes: 8 * KIB }, ONE_SERVICE_CALL],
  "identity-provider/registration": ["JSON", { bytes: MIB, items: 50_000 }, ONE_SERVICE_CALL],
  "cloud-provider/credentials": ["JSON", { bytes: 64 * KIB }, ONE_PROVIDER],
  "cloud-provider/xml-credentials": ["XML", { bytes: 64 * KIB }, ONE_PROVIDER],

  "ext-authz/http-response": ["HTTP body", { bytes: 64 * KIB, items: 100 }, ONE_SERVICE_CALL],
  "ext-authz/grpc-response": ["protobuf", { bytes: 256 * KIB, items: 100 }, ONE_SERVICE_CALL],
  "ext-proc/message": ["protobuf", { bytes: MAX_PROCESSED, items: 100 }, "body pool"],
  "endpoint-picker/message": ["protobuf", { bytes: MAX_PICKED, items: 100 }, "body pool"],
  "rate-limit-service/response": ["protobuf", { bytes: 64 * KIB, items: 100 }, ONE_SERVICE_CALL],
  "mcp-guardrails/message": ["protobuf", { bytes: 32 * MIB + 256 * KIB, items: 100 }, "message pool"],
  "mcp-guardrails/change": ["JSON", { bytes: 32 * MIB }, "message pool"],
  "guard-service/verdict": ["JSON", { bytes: 8 * MIB, items: 100_000 }, "fixed: 64 calls of each service"],
  "guard-service/webhook-verdict": ["JSON", { bytes: 8 * MIB, items: 101_000 }, ONE_SERVICE_CALL],
  "alert-service/response": ["HTTP body", { bytes: 64 * KIB }, ONE_SERVICE_CALL],
  "a2a-agent/card": ["JSON", { bytes: MIB, items: 50_000 }, ONE_SERVICE_CALL],
  "otlp-collector/response": ["HTTP body", { bytes: 4 * MIB }, ONE_SERVICE_CALL],

  "redis/entry": ["Redis", { bytes: MIB }, "store"],
  "redis/message": ["Redis", { bytes: 8 * MIB }, "store"],
  "store/api-key": ["JSON", { bytes: MIB }, "cache"],
  "store/browser-session": ["JSON", { bytes: MIB }, ONE_EXCHANGE],
  "store/sealed-value": ["JSON", { bytes: MIB }, ONE_EXCHANGE],
  "store/cached-response": ["JSON", { bytes: MIB }, ONE_EXCHANGE],
  "store/traffic-history": ["JSON", { bytes: MIB }, "fixed: read once at the start"],
  "postgres/row": ["PostgreSQL", { bytes: MIB }, "history"],
  "history/charges": ["JSON", { bytes: MIB }, "history"],
  "history/details": ["JSON", { bytes: MIB }, "history"],
  "history/packed-rows": ["JSON", { bytes: 64 * MIB }, "history"],
  "history/row": ["JSON", { bytes: 64 * MIB }, "history"],
  "file/history-database": ["SQLite", { bytes: MIB }, "history"],
  "file/history-spool": ["lines", { bytes: 64 * MIB }, "history"],

  "kubernetes-api/response": ["JSON", { bytes: 128 * MIB }, "fixed: one list for each watched kind"],
  "kubernetes-api/watch-lines": ["lines", { bytes: 16 * MIB }, "fixed: one event for each watched kind"],
  "kubernetes-api/watch-event": ["JSON", { bytes: 16 * MIB }, "fixed: one event for each watched kind"],
  "kubernetes-api/error": ["JSON", { bytes: MIB }, "fixed: one for each watched kind"],
  "kubernetes-plugin/credential": ["JSON", { bytes: MIB }, "fixed: one at a time"],
  "controller/snapshot-stream": ["event stream", { bytes: 64 * MIB }, "fixed: one at a time"],
  "controller/snapshot": ["JSON", { bytes: 64 * MIB }, "fixed: one at a time"],
  "data-plane/acknowledgment": ["JSON", { bytes: 256 * KIB }, "fixed: one for each of 4,096 streams"],
  "replica/report": ["JSON", { bytes: 64 * MIB }, "fixed: one for each of 64 replicas"],
  "replica/mcp-message": ["JSON", { bytes: 8 * MIB }, "session"],
  "thread/admin-response": ["JSON", { bytes: 256 * MIB }, "fixed: one response of each thread"],
  "upgraded-process/message": ["structured clone", { bytes: 8 * MIB }, "fixed: one process"],
  "upgraded-process/sockets": ["JSON", { bytes: 128 * KIB }, "fixed: one process"],

  "file/configuration": ["YAML", { bytes: 8 * MIB, items: 2_000_000, depth: 64 }, AT_LOAD],
  "file/credentials": ["PEM", { bytes: MIB }, AT_LOAD],
  "file/jwks": ["JSON", { bytes: MIB, items: 50_000, open: 100 }, AT_LOAD],
  "file/htpasswd": ["lines", { bytes: MIB }, AT_LOAD],
  "file/prices": ["JSON", { bytes: 16 * MIB }, AT_LOAD],
  "file/yaml-description": ["YAML", { bytes: MIB, items: 500_000, depth: 256 }, AT_LOAD],
  "file/tool-lock": ["JSON", { bytes: 16 * MIB }, AT_LOAD],
  "file/cloud-credentials": ["JSON", { bytes: MIB }, AT_LOAD],
  "file/expression": ["CEL", { bytes: 16 * KIB, items: 4_096, depth: 64 }, AT_LOAD],
  // The time of the compiler grows with the square of the length.
  "file/pattern": ["regular expression", { bytes: 8 * KIB }, AT_LOAD],
  "file/server-address": ["form", { bytes: MIB }, AT_LOAD],
  "file/kubeconfig": [
    "YAML",
    { bytes: 8 * MIB, items: 500_000, depth: 64 },
    "fixed: read again when the API server rejects the credential",
  ],
  "file/store-journal": ["lines", { bytes: 8 * MIB }, "store"],
  "file/store-change": ["JSON", { bytes: 8 * MIB }, "store"],
  "file/store-lock": ["JSON", { bytes: KIB }, "fixed: one at a time"],
  "file/recording": ["lines", { bytes: 256 * MIB, items: 100_000 }, COMMAND],
  "file/recorded-request": ["JSON", { bytes: 64 * MIB }, COMMAND],
  "file/imported-configuration": ["YAML", { bytes: 8 * MIB, items: 2_000_000, depth: 64 }, COMMAND],
  "file/principals": ["YAML", { bytes: 8 * MIB, items: 500_000, depth: 64 }, COMMAND],
  "file/imported-text": ["JSON", { bytes: 8 * MIB }, COMMAND],
  "file/configuration-dump": ["JSON", { bytes: 64 * MIB }, COMMAND],
  "command-line/json": ["JSON", { bytes: MIB }, COMMAND],
  "demo-client/message": ["JSON", { bytes: 16 * MIB }, "fixed: one at a time"],

  "admin-client/body": ["JSON", { bytes: MIB }, "fixed: one for each of 256 connections"],
  "admin-client/configuration-edit": ["JSON", { bytes: 16 * MIB }, "fixed: one for each of 256 connections"],
  "admin-client/configuration": [
    "YAML",
    { bytes: 8 * MIB, items: 2_000_000, depth: 64 },
    "fixed: one for each of 256 connections",
  ],
  "admin-client/query": ["form", { bytes: 16 * KIB }, "fixed: one for each of 256 connections"],
  "admin-client/profile": ["compressed", { bytes: 64 * MIB, ratio: RATIO }, "fixed: one profile for each thread"],
  "admin-client/packed-page": [
    "compressed",
    { bytes: 8 * MIB, ratio: RATIO },
    "fixed: one for each of 256 connections",
  ],
  "gateway/admin-response": ["JSON", { bytes: 256 * MIB }, COMMAND],
  "gateway/validation-report": ["JSON", { bytes: 256 * MIB }, COMMAND],
  "gateway/rehearsal-report": ["JSON", { bytes: 256 * MIB }, COMMAND],
  "gateway/request-record": ["JSON", { bytes: 16 * MIB }, COMMAND],
  "gateway/trace": ["lines", { bytes: 64 * MIB }, COMMAND],
  "gateway/trace-event": ["JSON", { bytes: 64 * MIB }, COMMAND],
  "gateway/resource-metadata": ["JSON", { bytes: MIB }, COMMAND],
  "gateway/mcp-message": ["JSON", { bytes: MAX_MESSAGE, depth: NO_DEPTH }, "message pool"],
  "gateway/redacted-value": ["JSON", { bytes: 64 * MIB, depth: NO_DEPTH }, ONE_EXCHANGE],
  "gateway/kept-trace": ["JSON", { bytes: 64 * MIB, depth: NO_DEPTH }, ONE_EXCHANGE],
  "gateway/recorded-attributes": ["JSON", { bytes: 16 * MIB, depth: NO_DEPTH }, "history"],
} as const satisfies Readonly<Record<string, Entry>>;

export type InputId = keyof typeof TABLE;

export type InputReader<Id extends InputId> = (typeof TABLE)[Id][0];

const BY_ID = new Map(
  Object.entries(TABLE).map(([id, [reader, limits, account]]) => [
    id,
    createInput<Reader>(id, reader, limits, account),
  ]),
);

export const PEER_INPUTS: readonly PeerInput[] = [...BY_ID.values()];

/** Call this once for each reader, not for each message. */
export function peerInput<Id extends InputId>(id: Id): PeerInput<InputReader<Id>> {
  return BY_ID.get(id) as PeerInput<InputReader<Id>>;
}
