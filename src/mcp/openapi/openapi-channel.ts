/**
 * Implements the transport to an HTTP API. It acts as an MCP server inside the gateway that has only tools and converts
 * each call into an HTTP request.
 */

import { InOrder } from "../../base/in-order.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { SLICED_BYTES } from "../../base/sliced-work.ts";
import { HeaderList } from "../../http/headers.ts";
import type { HttpCall } from "../../http/http-client.ts";
import { find, slice } from "../../json/json-text.ts";
import { readJson } from "../../json/read-json.ts";
import {
  asMembersResult,
  asResult,
  asServerMessage,
  errorText,
  INVALID_PARAMS,
  METHOD_NOT_FOUND,
  type ResultMembers,
  type ServerMessage,
} from "../protocol/json-rpc.ts";
import { is2025Version, LATEST_2025 } from "../protocol/protocol-version.ts";
import type { Channel, ChannelHandlers, Outgoing } from "../transports/transport.ts";
import type { OpenApi } from "./api.ts";
import { problemResult, resultReader } from "./api-results.ts";
import { isObject } from "./document.ts";
import type { LoadedApi } from "./load-description.ts";
import type { Operation } from "./operations.ts";
import { ArgumentProblem } from "./value-shape.ts";

const OWN_MESSAGE = peerInput("gateway/mcp-message");

const PAGE_TOOLS = 250;
const MAX_INSTRUCTIONS_CHARS = 2_000;
const MAX_API_CALLS = 256;

interface ApiCall {
  /** Undefined while the description is loaded. */
  http: HttpCall | undefined;
}

interface ToolRequest {
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
}

export class OpenApiChannel implements Channel {
  readonly #api: OpenApi;
  readonly #handlers: ChannelHandlers;
  readonly #calls = new Map<number, ApiCall>();
  #isClosed = false;
  #isPaused = false;

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
    const call: ApiCall = { http: undefined };
    this.#calls.set(wireId, call);
    void this.#api
      .load()
      .then((loaded) => {
        // The call may have been canceled in the meantime.
        if (this.#calls.get(wireId) === call) this.#serve(wireId, message, loaded, call);
      })
      .catch((error: unknown) =>
        this.#fail(wireId, `has no tools: ${error instanceof Error ? error.message : String(error)}`),
      );
  }

  abandon(wireId: number): void {
    this.#calls.get(wireId)?.http?.abort();
    this.#calls.delete(wireId);
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    for (const { http } of this.#calls.values()) http?.resume();
  }

  close(): Promise<void> {
    this.#isClosed = true;
    for (const { http } of this.#calls.values()) http?.abort();
    this.#calls.clear();
    return Promise.resolve();
  }

  detail(): Record<string, unknown> {
    return { address: this.address, underWay: this.#calls.size };
  }

  #serve(wireId: number, message: Outgoing, { about, operations }: LoadedApi, call: ApiCall): void {
    const { method, params = {} } = readJson(OWN_MESSAGE, message.text) as Partial<ToolRequest>;
    switch (method) {
      case "initialize": {
        const asked = String(params.protocolVersion);
        this.#answer(wireId, {
          protocolVersion: is2025Version(asked) ? asked : LATEST_2025,
          capabilities: { tools: {} },
          serverInfo: { name: about.title, version: about.version },
          ...(about.description === undefined
            ? {}
            : { instructions: about.description.slice(0, MAX_INSTRUCTIONS_CHARS) }),
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
        this.#call(wireId, message, params, operations.byName.get(String(params.name)), call);
        return;
      default:
        this.#error(wireId, METHOD_NOT_FOUND, `Method not found: ${String(method)}`);
    }
  }

  #call(
    wireId: number,
    message: Outgoing,
    params: ToolRequest["params"],
    operation: Operation | undefined,
    call: ApiCall,
  ): void {
    if (operation === undefined) {
      this.#error(wireId, INVALID_PARAMS, `Unknown tool: ${String(params.name)}`);
      return;
    }
    const values = params.arguments ?? {};
    const body = find(message.text, 0, "params", "arguments", "body");
    try {
      if (!isObject(values)) throw new ArgumentProblem("the arguments must be an object");
      const args = { values, bodyText: body && slice(message.text, body) };
      call.http = this.#api.send(operation, args, message, this.#receiver(wireId, call));
    } catch (error) {
      if (!(error instanceof ArgumentProblem)) throw error;
      this.#toolResult(wireId, problemResult(`Invalid arguments: ${error.message}`));
    }
  }

  #receiver(wireId: number, call: ApiCall) {
    const isOver = (): boolean => this.#calls.get(wireId) !== call;
    const fail = (reason: string): void => {
      if (!isOver()) this.#fail(wireId, reason);
    };
    const work = new InOrder({
      busy: () => undefined,
      idle: () => undefined,
      failed: () => {
        call.http?.abort();
        fail("sent a response that could not be handled");
      },
      isOver,
    });
    let result = resultReader(0, new HeaderList());
    return {
      head: (status: number, headers: HeaderList): void => {
        result = resultReader(status, headers);
      },
      reader: () => ({
        get bytes() {
          return result.bytes;
        },
        add: (chunk: Buffer) => result.add(chunk),
        end: () =>
          work.run(result.result(), result.bytes <= SLICED_BYTES, (members) => {
            if (!isOver()) this.#toolResult(wireId, members);
          }),
      }),
      event: () => undefined,
      body: () => undefined,
      mayRead: () => !this.#isPaused,
      afterParsing: (parsed: () => void): void => work.afterwards(parsed),
      end: () => undefined,
      error: fail,
    };
  }

  #answer(wireId: number, result: object): void {
    this.#result(wireId, JSON.stringify(result));
  }

  #result(wireId: number, result: string): void {
    this.#deliver(wireId, asResult(result));
  }

  #toolResult(wireId: number, members: ResultMembers): void {
    this.#deliver(wireId, asMembersResult(members));
  }

  #error(wireId: number, code: number, text: string): void {
    this.#deliver(wireId, asServerMessage(errorText(String(wireId), code, text)));
  }

  #deliver(wireId: number, message: ServerMessage): void {
    this.#calls.delete(wireId);
    if (!this.#isClosed) this.#handlers.message(message, wireId);
  }

  #fail(wireId: number, reason: string): void {
    this.#calls.delete(wireId);
    if (!this.#isClosed) this.#handlers.failed(wireId, this.#api.shown(reason));
  }
}
