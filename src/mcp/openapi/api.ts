/**
 * Represents one HTTP API of a target with its OpenAPI description and its connection pool.
 */

import type { Clock } from "../../base/clock.ts";
import { newForm } from "../../base/form.ts";
import type { ServerMessages } from "../../base/memory-budget.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { SignRequest } from "../../core/signed-request.ts";
import type { EgressGuard } from "../../http/egress-guard.ts";
import type { Fetch } from "../../http/fetch.ts";
import { isSameHeader } from "../../http/header-rules.ts";
import type { HttpCall, TlsOptions } from "../../http/http-client.ts";
import { SIGNATURE_HEADERS } from "../../identity/cloud/cloud-credentials.ts";
import type { Logger } from "../../record/log/logger.ts";
import { withoutSecrets } from "../../record/trace/redact.ts";
import { openRemoteServer, type RemoteHandler, type RemoteServer } from "../transports/remote-server.ts";
import type { Outgoing } from "../transports/transport.ts";
import { convertDescription, type LoadedApi, loadDescription } from "./load-description.ts";
import type { OpenApiConfig } from "./openapi-config.ts";
import type { Operation } from "./operations.ts";
import type { ReservedName } from "./parameters.ts";
import { apiRequest, type ToolArguments } from "./request.ts";

const DESCRIPTION = peerInput("openapi-server/description");
const FETCH_MS = 20_000;
/** A description that cannot be loaded is not fetched and converted again for each session. */
const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 60_000;

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
  readonly messages: ServerMessages;
}

export class OpenApi {
  readonly address: string;
  readonly #config: OpenApiConfig;
  readonly #env: ApiOptions;
  readonly #server: RemoteServer;
  readonly #basePath: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #secrets: readonly string[];
  #loading: Promise<LoadedApi> | undefined = undefined;
  #retryAtMs = 0;
  #retryDelayMs = FIRST_RETRY_MS;

  constructor(config: OpenApiConfig, env: ApiOptions) {
    this.#config = config;
    this.#env = env;
    const { auth } = config;
    this.#headers = { ...config.headers, ...authHeaders(auth) };
    const url = new URL(serverUrl(config));
    this.#basePath = url.pathname.replace(/\/$/, "");
    url.search = auth?.query ? newForm({ [auth.query.name]: auth.query.value }).toString() : "";
    this.#server = openRemoteServer({ ...env, url: url.href, headers: this.#headers }, env.tls);
    this.address = this.#server.address;
    this.#secrets = [
      ...Object.values(config.headers),
      ...[auth?.bearer, auth?.basic?.password, auth?.header?.value, auth?.query?.value].filter(
        (one) => one !== undefined,
      ),
    ];
  }

  /** Loads the description once for all callers. After a failure, calls fail until the delay is over. */
  load(): Promise<LoadedApi> {
    const nowMs = this.#env.clock.monotonicMs();
    if (this.#loading === undefined || nowMs >= this.#retryAtMs) {
      this.#retryAtMs = Number.POSITIVE_INFINITY;
      this.#loading = this.#load();
      this.#loading.catch(() => {
        this.#retryAtMs = this.#env.clock.monotonicMs() + this.#retryDelayMs;
        this.#retryDelayMs = Math.min(MAX_RETRY_MS, this.#retryDelayMs * 2);
      });
    }
    return this.#loading;
  }

  shown(text: string): string {
    return withoutSecrets(text, this.#secrets);
  }

  /** Throws `ArgumentProblem` if the arguments cannot be sent as the description declares them. */
  send(operation: Operation, args: ToolArguments, message: Outgoing, handler: RemoteHandler): HttpCall {
    const forwarded = message.headers ?? [];
    const own: string[] = [];
    for (let i = 0; i + 1 < forwarded.length; i += 2)
      if (!Object.keys(this.#headers).some((name) => isSameHeader(name, forwarded[i] as string)))
        own.push(forwarded[i] as string, forwarded[i + 1] as string);
    const { query } = this.#config.auth ?? {};
    const request = apiRequest(operation, args, {
      headers: [...own, ...Object.entries(this.#headers).flat()],
      query: query ? [query.name, query.value] : [],
    });
    const { method, path, headers, body } = request;
    return this.#server.send(
      {
        method,
        path: this.#basePath + path,
        headers: headers.pairs,
        body,
        wire: message.wire,
        mayRepeat: method === "GET" || method === "HEAD",
      },
      handler,
    );
  }

  close(): void {
    this.#server.close();
  }

  async #load(): Promise<LoadedApi> {
    const { include, exclude, source } = this.#config;
    const selection = { include, exclude, reserved: reservedNames(this.#config) };
    const loaded = source
      ? await convertDescription(source.document, selection)
      : await loadDescription(await this.#fetched(), selection, this.#env.clock);
    for (const { operation, reason } of loaded.operations.left)
      this.#env.logger.warn("OpenAPI operation left out", { target: this.#env.name, operation, reason });
    return loaded;
  }

  async #fetched(): Promise<string> {
    const url = this.#config.url ?? "";
    const { tls } = this.#env;
    const answer = await this.#env.fetch({
      url,
      headers: { accept: "application/json, application/yaml;q=0.9, */*;q=0.5" },
      timeoutMs: FETCH_MS,
      input: DESCRIPTION,
      ...(tls ? { tls } : {}),
    });
    if (answer.status !== 200) throw new Error(`the request for its description returned status ${answer.status}`);
    return answer.body.toString();
  }
}

function authHeaders(auth: OpenApiConfig["auth"]): Record<string, string> {
  if (auth?.bearer !== undefined) return { authorization: `Bearer ${auth.bearer}` };
  if (auth?.header) return { [auth.header.name.toLowerCase()]: auth.header.value };
  if (auth?.basic === undefined) return {};
  const pair = Buffer.from(`${auth.basic.username}:${auth.basic.password}`).toString("base64");
  return { authorization: `Basic ${pair}` };
}

/** Arguments cannot set what the gateway sends or forwards itself, even in requests in which it has no value. */
export function reservedNames(config: Pick<OpenApiConfig, "auth" | "headers" | "forwardHeaders">): ReservedName[] {
  const { auth, headers, forwardHeaders } = config;
  const names = [
    ...Object.keys(headers),
    ...forwardHeaders,
    ...Object.keys(authHeaders(auth)),
    ...(auth?.aws ? SIGNATURE_HEADERS : []),
  ];
  const reserved: ReservedName[] = names.map((name) => ({ in: "header", name }));
  if (auth?.query) reserved.push({ in: "query", name: auth.query.name });
  if (names.some((name) => isSameHeader(name, "cookie"))) reserved.push({ in: "cookie", name: undefined });
  return reserved;
}

/** Throws an Error if neither the configuration nor the description contains a base URL. */
export function serverUrl({ server, source }: OpenApiConfig): string {
  const url = server ?? source?.document.server;
  if (url === undefined) throw new Error("the description has no absolute server URL. Set `server`");
  return url;
}
