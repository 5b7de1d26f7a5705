/**
 * What CEL may read of an exchange, under the names of the documentation. Every top-level attribute is a getter,
 * so that an expression pays only for what it reads; an absent one is undefined, which CEL sees as an empty map.
 */
import { celHeaders } from "../cel/values/headers.ts";
import type { HeaderList } from "../lib/http/headers.ts";
import type { Trace } from "../trace/trace.ts";
import { pathAndQuery } from "./request-path.ts";

const ENV = Object.freeze({});

/** The part of an exchange that expressions may read; whatever is not named here stays hidden from them. */
export interface ReadableExchange {
  readonly request: {
    readonly method: string;
    readonly scheme: string;
    readonly host: string;
    readonly path: string;
    readonly query: string;
    readonly version: string;
    readonly headers: HeaderList;
    readonly body: { readonly kind: "none" | "stream" } | { readonly kind: "bytes"; readonly bytes: Buffer };
  };
  readonly response: { readonly status: number; readonly headers: HeaderList; readonly body?: Buffer } | undefined;
  readonly startedAt: number;
  readonly source: { readonly address: string; readonly port: number; readonly identity?: string | undefined };
  readonly facts: {
    readonly jwt?: object;
    readonly apiKey?: object;
    readonly basicAuth?: object;
    readonly llm?: object;
    readonly mcp?: object;
    readonly backend?: object;
  };
  readonly listener: string;
  readonly route: string | undefined;
  readonly trace: Trace | undefined;
  readonly secrets: readonly string[] | undefined;
}

export class Attributes {
  readonly #exchange: ReadableExchange;

  constructor(exchange: ReadableExchange) {
    this.#exchange = exchange;
  }

  /** The trace of the request that these attributes belong to; undefined for any other object. */
  static traceOf(attributes: object): Trace | undefined {
    return #exchange in attributes ? attributes.#exchange.trace : undefined;
  }

  /** What the trace must not show of that request's headers, whatever name it stands under. */
  static secretsOf(attributes: object): readonly string[] {
    return (#exchange in attributes ? attributes.#exchange.secrets : undefined) ?? [];
  }

  get request(): Record<string, unknown> {
    const { request, startedAt } = this.#exchange;
    const attributes = {
      method: request.method,
      scheme: request.scheme,
      host: request.host,
      path: request.path,
      pathAndQuery: pathAndQuery(request),
      uri: `${request.scheme}://${request.host}${pathAndQuery(request)}`,
      version: `HTTP/${request.version}`,
      headers: celHeaders(request.headers),
      // A Date becomes a timestamp when it is read; as text it would cost more than most evaluations.
      startTime: new Date(startedAt),
    };
    return request.body.kind === "bytes" ? withBody(attributes, request.body.bytes) : attributes;
  }

  get response(): Record<string, unknown> | undefined {
    const { response } = this.#exchange;
    if (!response) return undefined;
    const attributes = { code: response.status, headers: celHeaders(response.headers) };
    return response.body ? withBody(attributes, response.body) : attributes;
  }

  get source(): Record<string, unknown> {
    const { address, port, identity } = this.#exchange.source;
    return identity === undefined ? { address, port } : { address, port, identity };
  }

  get jwt(): object | undefined {
    return this.#exchange.facts.jwt;
  }

  get apiKey(): object | undefined {
    return this.#exchange.facts.apiKey;
  }

  get basicAuth(): object | undefined {
    return this.#exchange.facts.basicAuth;
  }

  get llm(): object | undefined {
    return this.#exchange.facts.llm;
  }

  get mcp(): object | undefined {
    return this.#exchange.facts.mcp;
  }

  get backend(): object | undefined {
    return this.#exchange.facts.backend;
  }

  get proxy(): Record<string, unknown> {
    const { listener, route } = this.#exchange;
    return { listener: { name: listener }, ...(route === undefined ? {} : { route: { name: route } }) };
  }

  get env(): object {
    return ENV;
  }
}

/** A body becomes text when an expression reads it, not when one reads something beside it. */
function withBody(attributes: Record<string, unknown>, bytes: Buffer): Record<string, unknown> {
  return Object.defineProperty(attributes, "body", { enumerable: true, get: () => bytes.toString() });
}
