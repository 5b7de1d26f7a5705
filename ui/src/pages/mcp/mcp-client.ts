/**
 * Implements an MCP client over streamable HTTP. It supports pings and elicitation, but not sampling.
 */
import { callListener, createEventReader, type ListenerResponse } from "../../data/call.ts";
import type { Endpoint } from "../../data/endpoints.ts";

const PROTOCOL_VERSION = "2025-06-18";
const MAX_PAGES = 50;

export interface ServerInfo {
  readonly protocolVersion: string;
  readonly serverInfo?: { readonly name?: string; readonly title?: string; readonly version?: string };
  readonly capabilities?: Readonly<Record<string, unknown>>;
  readonly instructions?: string;
}

export interface Notification {
  readonly method: string;
  readonly params?: Readonly<Record<string, unknown>>;
}

/** Shows a question of the server to the user. Resolves with the user's response. */
export type AskUser = (params: Readonly<Record<string, unknown>>) => Promise<unknown>;

export interface CallOptions {
  onNotification?(notification: Notification): void;
  readonly signal?: AbortSignal;
}

export interface CallResult {
  readonly result: unknown;
  /** Contains the `x-request-id` of the response, which identifies the trace. */
  readonly requestId: string | undefined;
}

/**
 * Thrown if the server responds with a JSON-RPC error or with no JSON-RPC message. `authenticate` is the
 * `www-authenticate` header of the response.
 */
export class McpError extends Error {
  readonly status: number;
  readonly authenticate: string | undefined;
  readonly requestId: string | undefined;

  constructor(message: string, answer?: ListenerResponse) {
    super(message);
    this.name = "McpError";
    this.status = answer?.status ?? 0;
    this.authenticate = answer?.headers.get("www-authenticate");
    this.requestId = answer?.headers.get("x-request-id");
  }
}

interface Message {
  readonly id?: string | number | null;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
}

/** The name tells the playground's sessions from those of other clients. */
export const PLAYGROUND_CLIENT = "gateway-ui";

export class McpClient {
  readonly #endpoint: Endpoint;
  readonly #credential: Readonly<Record<string, string>>;
  readonly #askUser: AskUser;
  #sessionId: string | undefined;
  #version: string | undefined;
  #nextId = 1;

  constructor(endpoint: Endpoint, credential: Readonly<Record<string, string>>, askUser: AskUser) {
    this.#endpoint = endpoint;
    this.#credential = credential;
    this.#askUser = askUser;
  }

  get sessionId(): string | undefined {
    return this.#sessionId;
  }

  async connect(): Promise<ServerInfo> {
    const { result } = await this.request("initialize", {
      protocolVersion: PROTOCOL_VERSION,
      capabilities: { elicitation: {} },
      clientInfo: { name: PLAYGROUND_CLIENT, version: "1" },
    });
    const info = result as ServerInfo;
    this.#version = info.protocolVersion;
    await this.#post({ method: "notifications/initialized" });
    return info;
  }

  async list<Item>(method: string, key: string): Promise<Item[]> {
    const items: Item[] = [];
    let cursor: string | undefined;
    for (let i = 0; i < MAX_PAGES; i++) {
      const { result } = await this.request(method, cursor === undefined ? {} : { cursor });
      const page = result as Record<string, unknown> & { nextCursor?: string };
      items.push(...((page[key] as Item[] | undefined) ?? []));
      cursor = page.nextCursor;
      if (cursor === undefined) break;
    }
    return items;
  }

  request(method: string, params: Readonly<Record<string, unknown>>, options: CallOptions = {}): Promise<CallResult> {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      let reply: Message | undefined;
      let requestId: string | undefined;
      const receive = (message: Message): void => {
        if (message.method !== undefined && message.id !== undefined) void this.#answer(message);
        else if (message.method !== undefined)
          options.onNotification?.({ method: message.method, ...(message.params ? { params: message.params } : {}) });
        else if (message.id === id) {
          reply = message;
          settle();
        }
      };
      const settle = (): void => {
        if (reply?.error) reject(new McpError(`${reply.error.message} (${reply.error.code})`));
        else if (reply) resolve({ result: reply.result, requestId });
      };
      const onHead = (headers: ReadonlyMap<string, string>): void => {
        requestId = headers.get("x-request-id");
        this.#sessionId = headers.get("mcp-session-id") ?? this.#sessionId;
      };
      this.#post(
        { id, method, params },
        { receive, onHead, ...(options.signal ? { signal: options.signal } : {}) },
      ).then((answer) => {
        if (reply === undefined) reject(new McpError(problemOf(answer), answer));
      }, reject);
      options.signal?.addEventListener("abort", () => {
        this.#post({
          method: "notifications/cancelled",
          params: { requestId: id, reason: "cancelled by the user" },
        }).catch(() => undefined);
        reject(new McpError("cancelled"));
      });
    });
  }

  async close(): Promise<void> {
    if (this.#sessionId === undefined) return;
    await callListener({
      listener: this.#endpoint.listener,
      method: "DELETE",
      path: this.#endpoint.path,
      headers: this.#headers(),
    });
    this.#sessionId = undefined;
  }

  async #answer(message: Message): Promise<void> {
    const reply = (body: object): Promise<unknown> =>
      this.#post({ id: message.id ?? null, ...body }).catch(() => undefined);
    if (message.method === "ping") await reply({ result: {} });
    else if (message.method === "roots/list") await reply({ result: { roots: [] } });
    else if (message.method === "elicitation/create")
      await reply({ result: await this.#askUser(message.params ?? {}) });
    else await reply({ error: { code: -32601, message: "this client does not support that method" } });
  }

  async #post(
    message: object,
    handlers: {
      receive?(message: Message): void;
      onHead?(headers: ReadonlyMap<string, string>): void;
      signal?: AbortSignal;
    } = {},
  ): Promise<ListenerResponse> {
    let isStream = false;
    const read = createEventReader((data) => {
      const parsed = parse(data);
      for (const one of Array.isArray(parsed) ? parsed : [parsed]) if (one) handlers.receive?.(one);
    });
    const answer = await callListener(
      {
        listener: this.#endpoint.listener,
        method: "POST",
        path: this.#endpoint.path,
        headers: this.#headers(),
        body: JSON.stringify({ jsonrpc: "2.0", ...message }),
      },
      {
        onHead: (_status, headers) => {
          isStream = headers.get("content-type")?.startsWith("text/event-stream") ?? false;
          handlers.onHead?.(headers);
        },
        onText: (text) => {
          if (isStream) read(text);
        },
        ...(handlers.signal ? { signal: handlers.signal } : {}),
      },
    );
    const whole = isStream ? undefined : parse(answer.text);
    if (whole && !Array.isArray(whole)) handlers.receive?.(whole);
    return answer;
  }

  #headers(): Record<string, string> {
    return {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...(this.#endpoint.host === undefined ? {} : { host: this.#endpoint.host }),
      ...(this.#sessionId === undefined ? {} : { "mcp-session-id": this.#sessionId }),
      ...(this.#version === undefined ? {} : { "mcp-protocol-version": this.#version }),
      ...this.#credential,
    };
  }
}

function problemOf({ status, text }: ListenerResponse): string {
  const body = parse(text) as { error?: string | { message?: string }; error_description?: string } | undefined;
  const said =
    body?.error_description ??
    (typeof body?.error === "object" ? body.error.message : body?.error) ??
    text.slice(0, 300);
  return `the gateway responded with ${status}${said === "" ? "" : `: ${said}`}`;
}

function parse(text: string): (Message & Message[]) | undefined {
  try {
    return JSON.parse(text) as Message & Message[];
  } catch {
    return undefined;
  }
}
