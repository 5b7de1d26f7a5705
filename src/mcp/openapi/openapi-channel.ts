/**
 * Implements the transport to an HTTP API. It acts as an MCP server inside the gateway that has only tools and converts
 * each call into an HTTP request.
 */

import type { HeaderList } from "../../http/headers.ts";
import type { HttpCall } from "../../http/http-client.ts";
import { find, slice } from "../../json/json-text.ts";
import { jsonProblem } from "../../json/validate-json.ts";
import { asServerMessage, errorText, INVALID_PARAMS, METHOD_NOT_FOUND, resultText } from "../protocol/json-rpc.ts";
import { isLegacyVersion, LATEST_LEGACY } from "../protocol/protocol-version.ts";
import type { Channel, ChannelHandlers, Outgoing } from "../transports/transport.ts";
import type { LoadedApi, OpenApi } from "./api.ts";
import { isObject } from "./document.ts";
import { apiRequest } from "./request.ts";
import { ArgumentProblem } from "./value-shape.ts";

const PAGE_TOOLS = 250;
const MAX_INSTRUCTIONS_CHARS = 2_000;
const MAX_API_CALLS = 256;

interface ToolRequest {
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
}

export class OpenApiChannel implements Channel {
  readonly #api: OpenApi;
  readonly #handlers: ChannelHandlers;
  readonly #calls = new Map<number, HttpCall>();
  #isClosed = false;

  constructor(api: OpenApi, handlers: ChannelHandlers) {
    this.#api = api;
    this.#handlers = handlers;
  }

  get address(): string {
    return this.#api.address;
  }

  get isOverloaded(): boolean {
    return this.#calls.size >= MAX_API_CALLS;
  }

  setProtocol(): void {
    // An HTTP API has no MCP protocol version.
  }

  send(message: Outgoing): void {
    const { wireId } = message;
    // An API cannot use notifications. Cancellations also arrive through `abandon`.
    if (this.#isClosed || wireId === undefined) return;
    void this.#api
      .load()
      .then((loaded) => this.#serve(wireId, message, loaded))
      .catch((error: unknown) =>
        this.#fail(wireId, `has no tools: ${error instanceof Error ? error.message : String(error)}`),
      );
  }

  abandon(wireId: number): void {
    this.#calls.get(wireId)?.abort();
    this.#calls.delete(wireId);
  }

  pause(): void {
    // Results are delivered whole, so there is no stream to pause.
  }

  resume(): void {
    // Results are delivered whole, so there is no stream to resume.
  }

  close(): Promise<void> {
    this.#isClosed = true;
    for (const call of this.#calls.values()) call.abort();
    this.#calls.clear();
    return Promise.resolve();
  }

  detail(): Record<string, unknown> {
    return { address: this.address, underWay: this.#calls.size };
  }

  #serve(wireId: number, message: Outgoing, { document, operations }: LoadedApi): void {
    if (this.#isClosed) return;
    const { method, params = {} } = JSON.parse(message.text) as Partial<ToolRequest>;
    switch (method) {
      case "initialize": {
        const asked = String(params.protocolVersion);
        this.#answer(wireId, {
          protocolVersion: isLegacyVersion(asked) ? asked : LATEST_LEGACY,
          capabilities: { tools: {} },
          serverInfo: { name: document.title, version: document.version },
          ...(document.description === undefined
            ? {}
            : { instructions: document.description.slice(0, MAX_INSTRUCTIONS_CHARS) }),
        });
        return;
      }
      case "ping":
        this.#answer(wireId, {});
        return;
      case "tools/list": {
        const from = Number(params.cursor ?? 0);
        if (!Number.isInteger(from) || from < 0) {
          this.#error(wireId, INVALID_PARAMS, "Invalid cursor");
          return;
        }
        const tools = [...operations.byName.values()].slice(from, from + PAGE_TOOLS).map(({ text }) => text);
        const next = from + PAGE_TOOLS < operations.byName.size ? `,"nextCursor":"${from + PAGE_TOOLS}"` : "";
        this.#result(wireId, `{"tools":[${tools.join(",")}]${next}}`);
        return;
      }
      case "tools/call":
        this.#call(wireId, message, { method, params }, operations.byName.get(String(params.name)));
        return;
      default:
        this.#error(wireId, METHOD_NOT_FOUND, `Method not found: ${String(method)}`);
    }
  }

  #call(
    wireId: number,
    message: Outgoing,
    { params }: ToolRequest,
    operation: Parameters<typeof apiRequest>[0] | undefined,
  ): void {
    if (operation === undefined) {
      this.#error(wireId, INVALID_PARAMS, `Unknown tool: ${String(params.name)}`);
      return;
    }
    const args = params.arguments ?? {};
    const body = find(message.text, 0, "params", "arguments", "body");
    try {
      if (!isObject(args)) throw new ArgumentProblem("the arguments must be an object");
      const request = apiRequest(operation, { values: args, bodyText: body && slice(message.text, body) });
      const call = this.#api.send(request, message.headers ?? [], message.wire, {
        answered: (status, headers, bytes) => {
          this.#calls.delete(wireId);
          this.#result(wireId, toolResult(status, headers, bytes));
        },
        failed: (reason) => {
          this.#calls.delete(wireId);
          this.#fail(wireId, reason);
        },
      });
      this.#calls.set(wireId, call);
    } catch (error) {
      if (!(error instanceof ArgumentProblem)) throw error;
      this.#result(wireId, problemResult(`Invalid arguments: ${error.message}`));
    }
  }

  #answer(wireId: number, result: object): void {
    this.#result(wireId, JSON.stringify(result));
  }

  #result(wireId: number, result: string): void {
    this.#deliver(wireId, resultText(String(wireId), result));
  }

  #error(wireId: number, code: number, text: string): void {
    this.#deliver(wireId, errorText(String(wireId), code, text));
  }

  #deliver(wireId: number, text: string): void {
    if (!this.#isClosed) this.#handlers.message(asServerMessage(text), wireId);
  }

  #fail(wireId: number, reason: string): void {
    if (!this.#isClosed) this.#handlers.failed(wireId, this.#api.shown(reason));
  }
}

const MAX_ERROR_CHARS = 10_000;

export function toolResult(status: number, headers: HeaderList, body: Buffer): string {
  const type = (headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (status >= 300) return errorResult(status, headers, body);
  if (body.length === 0) return textResult(`The API returned status ${status} and no content.`);
  if (/^application\/json$|\+json$/.test(type) || (type === "" && looksLikeJson(body))) {
    const text = body.toString();
    if (jsonProblem(text) !== undefined) return textResult(text);
    // Parsing would change numbers beyond 2^53, so the original JSON is inserted.
    const structured = text.trimStart().startsWith("{") ? text : `{"result":${text}}`;
    return `{"content":[{"type":"text","text":${JSON.stringify(text)}}],"structuredContent":${structured}}`;
  }
  if (type.startsWith("image/") || type.startsWith("audio/")) {
    const kind = type.startsWith("image/") ? "image" : "audio";
    return JSON.stringify({ content: [{ type: kind, data: body.toString("base64"), mimeType: type }] });
  }
  if (type === "" || type.startsWith("text/") || /(?:xml|yaml|javascript|csv|x-www-form-urlencoded)/.test(type))
    return textResult(body.toString());
  return textResult(`The API returned ${body.length} bytes of ${type}, which cannot be shown.`);
}

export function problemResult(text: string): string {
  return JSON.stringify({ content: [{ type: "text", text }], isError: true });
}

function errorResult(status: number, headers: HeaderList, body: Buffer): string {
  if (status < 400) return problemResult(`The API returned a redirect (${status}), which is not followed.`);
  const said = body.toString().trim();
  const cut = said.length > MAX_ERROR_CHARS ? `${said.slice(0, MAX_ERROR_CHARS)}…` : said;
  const after = headers.get("retry-after");
  const text = `The API returned status ${status}${after === undefined ? "" : ` (retry after ${after})`}${cut === "" ? "." : `: ${cut}`}`;
  return problemResult(text);
}

function textResult(text: string): string {
  return JSON.stringify({ content: [{ type: "text", text }] });
}

function looksLikeJson(body: Buffer): boolean {
  return body[0] === 0x7b || body[0] === 0x5b;
}
