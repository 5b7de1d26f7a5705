/**
 * Represents one HTTP API of a target with its OpenAPI description and its connection pool.
 */

import type { Clock } from "../../base/clock.ts";
import type { SignRequest } from "../../core/signed-request.ts";
import type { WireTap } from "../../core/wire.ts";
import { openHttpPool } from "../../http/client/http-pool.ts";
import type { EgressGuard } from "../../http/egress-guard.ts";
import type { Fetch } from "../../http/fetch.ts";
import { HeaderList } from "../../http/headers.ts";
import type { HttpCall, HttpPool, TlsOptions } from "../../http/http-client.ts";
import { SIGNATURE_HEADERS } from "../../identity/cloud/cloud-credentials.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { withoutSecrets } from "../../observe/trace/redact.ts";
import { type OpenApiDocument, parseOpenApi } from "./document.ts";
import type { OpenApiConfig } from "./openapi-config.ts";
import { convertOperations, type Operations } from "./operations.ts";
import type { ApiRequest } from "./request.ts";

const MAX_DESCRIPTION_BYTES = 16 * 1024 * 1024;
const FETCH_MS = 20_000;
const SLICE_MS = 8;

export interface ApiOptions {
  readonly name: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly fetch: Fetch;
  readonly tls: TlsOptions | undefined;
  readonly egress: EgressGuard;
  /** Signs every request in its final form. Returns undefined if requests are not signed. */
  signer(): SignRequest | undefined;
  maxMessageBytes(): number;
}

export interface ApiHandler {
  answered(status: number, headers: HeaderList, body: Buffer): void;
  /** The reason completes the sentence "target x …". */
  failed(reason: string): void;
}

interface OutgoingCall {
  readonly method: string;
  readonly path: string;
  readonly headers: HeaderList;
  readonly body: Buffer | undefined;
}

export interface LoadedApi {
  readonly document: OpenApiDocument;
  readonly operations: Operations;
}

export class OpenApi {
  readonly address: string;
  readonly #config: OpenApiConfig;
  readonly #env: ApiOptions;
  readonly #server: URL;
  readonly #pool: HttpPool;
  readonly #secrets: readonly string[];
  #loading: Promise<LoadedApi> | undefined = undefined;

  constructor(config: OpenApiConfig, env: ApiOptions) {
    this.#config = config;
    this.#env = env;
    this.#server = new URL(serverUrl(config));
    const isTls = this.#server.protocol === "https:";
    const port = this.#server.port === "" ? (isTls ? 443 : 80) : Number(this.#server.port);
    const host = this.#server.hostname.replace(/^\[|\]$/g, "");
    this.#pool = openHttpPool({
      protocol: isTls ? "https" : "http",
      host,
      port,
      egress: env.egress,
      ...(isTls && env.tls ? { tls: env.tls } : {}),
    });
    this.address = `${this.#server.hostname}:${port}`;
    const { auth } = config;
    this.#secrets = [
      ...Object.values(config.headers),
      ...[auth?.bearer, auth?.basic?.password, auth?.header?.value, auth?.query?.value].filter(
        (one) => one !== undefined,
      ),
    ];
  }

  /** Loads the description once for all callers. After a failure, the next call loads it again. */
  load(): Promise<LoadedApi> {
    this.#loading ??= this.#load().catch((error: unknown) => {
      this.#loading = undefined;
      throw error;
    });
    return this.#loading;
  }

  shown(text: string): string {
    return withoutSecrets(text, this.#secrets);
  }

  send(request: ApiRequest, forwarded: readonly string[], wire: WireTap | undefined, handler: ApiHandler): HttpCall {
    const { headers } = request;
    for (let i = 0; i + 1 < forwarded.length; i += 2) headers.set(forwarded[i] as string, forwarded[i + 1] as string);
    for (const [name, value] of Object.entries(this.#config.headers)) headers.set(name, value);
    headers.set("host", this.#server.host);
    headers.set("accept-encoding", "identity");
    const { auth } = this.#config;
    if (auth?.bearer !== undefined) headers.set("authorization", `Bearer ${auth.bearer}`);
    if (auth?.basic) {
      const pair = Buffer.from(`${auth.basic.username}:${auth.basic.password}`).toString("base64");
      headers.set("authorization", `Basic ${pair}`);
    }
    if (auth?.header) headers.set(auth.header.name, auth.header.value);
    const outgoing = { method: request.method, path: this.#path(request.path), headers, body: request.body };
    const start = (): HttpCall => {
      wire?.attempt(this.address, {
        over: "http",
        scheme: this.#scheme,
        request: outgoing,
        hiddenHeaders: [...Object.keys(this.#config.headers), ...(auth?.header ? [auth.header.name] : [])],
        hiddenQuery: auth?.query ? [auth.query.name] : [],
        isReported: true,
      });
      return this.#read(outgoing, wire, handler);
    };
    const sign = this.#env.signer();
    return sign === undefined ? start() : this.#signed(outgoing, sign, start, handler);
  }

  get #scheme(): "http" | "https" {
    return this.#server.protocol === "https:" ? "https" : "http";
  }

  #signed(outgoing: OutgoingCall, sign: SignRequest, start: () => HttpCall, handler: ApiHandler): HttpCall {
    for (const name of SIGNATURE_HEADERS) outgoing.headers.delete(name);
    const { hostname } = this.#server;
    const running: { call: HttpCall | undefined; isOver: boolean } = { call: undefined, isOver: false };
    sign({
      ...outgoing,
      protocol: this.#scheme,
      hostname: hostname.replace(/^\[|\]$/g, ""),
      port: Number(this.address.slice(hostname.length + 1)),
      body: outgoing.body === undefined ? [] : [outgoing.body],
    }).then(
      () => {
        if (!running.isOver) running.call = start();
      },
      (error: Error) => {
        if (!running.isOver) handler.failed(`could not be called: ${error.message}`);
        running.isOver = true;
      },
    );
    return {
      get isOver() {
        return running.isOver || running.call?.isOver === true;
      },
      abort: () => {
        running.isOver = true;
        running.call?.abort();
      },
      resume: () => running.call?.resume(),
    };
  }

  close(): void {
    this.#pool.close();
  }

  #path(path: string): string {
    const base = this.#server.pathname.replace(/\/$/, "");
    const { query } = this.#config.auth ?? {};
    if (!query) return base + path;
    const key = `${encodeURIComponent(query.name)}=${encodeURIComponent(query.value)}`;
    return `${base}${path}${path.includes("?") ? "&" : "?"}${key}`;
  }

  #read(outgoing: OutgoingCall, wire: WireTap | undefined, handler: ApiHandler): HttpCall {
    const limit = this.#env.maxMessageBytes();
    const chunks: Buffer[] = [];
    let bytes = 0;
    let status = 0;
    let answered = new HeaderList();
    const call = this.#pool.send(outgoing, {
      head: (code, headers) => {
        status = code;
        answered = headers;
        // The next call uses the corrected time.
        this.#env.signer()?.correctClock(code, headers);
        wire?.received(code, headers, this.address);
      },
      data: (chunk) => {
        bytes += chunk.length;
        if (bytes > limit) {
          call.abort();
          handler.failed(`sent a response larger than ${limit} bytes`);
          return true;
        }
        chunks.push(chunk);
        return true;
      },
      end: () => handler.answered(status, answered, Buffer.concat(chunks)),
      fail: (error) => {
        if (status === 0) wire?.missed(error.message, this.address);
        handler.failed(
          status === 0 ? `could not be reached: ${error.message}` : `ended its response early: ${error.message}`,
        );
      },
    });
    return call;
  }

  async #load(): Promise<LoadedApi> {
    const document = this.#config.source?.document ?? parseOpenApi(await this.#fetched());
    const operations = await this.#inSlices(
      convertOperations(document, { ...this.#config, reserved: this.#reserved() }),
    );
    for (const { operation, reason } of operations.left)
      this.#env.logger.warn("OpenAPI operation left out", { target: this.#env.name, operation, reason });
    return { document, operations };
  }

  #reserved(): { in: "header" | "query"; name: string }[] {
    const { auth, headers } = this.#config;
    return [
      ...[
        ...Object.keys(headers),
        ...(auth?.header ? [auth.header.name] : []),
        ...(auth?.aws ? SIGNATURE_HEADERS : []),
      ].map((name) => ({
        in: "header" as const,
        name,
      })),
      ...(auth?.query ? [{ in: "query" as const, name: auth.query.name }] : []),
    ];
  }

  async #fetched(): Promise<string> {
    const url = this.#config.url ?? "";
    const { tls } = this.#env;
    const answer = await this.#env.fetch({
      url,
      headers: { accept: "application/json, application/yaml;q=0.9, */*;q=0.5" },
      timeoutMs: FETCH_MS,
      maxBytes: MAX_DESCRIPTION_BYTES,
      ...(tls ? { tls } : {}),
    });
    if (answer.status !== 200) throw new Error(`the request for its description returned status ${answer.status}`);
    return answer.body.toString();
  }

  async #inSlices<Result>(steps: Generator<undefined, Result>): Promise<Result> {
    for (;;) {
      const endMs = this.#env.clock.monotonicMs() + SLICE_MS;
      do {
        const step = steps.next();
        if (step.done === true) return step.value;
      } while (this.#env.clock.monotonicMs() < endMs);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

/** Throws an Error if neither the configuration nor the description contains a base URL. */
export function serverUrl({ server, source }: OpenApiConfig): string {
  const url = server ?? source?.document.server;
  if (url === undefined) throw new Error("the description has no absolute server URL. Set `server`");
  return url;
}
