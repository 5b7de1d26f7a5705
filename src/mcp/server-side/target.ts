/**
 * Represents one configured server. It opens channels and stores what all sessions share, such as the supported
 * protocol versions.
 */

import { cpus } from "node:os";
import type { Clock } from "../../base/clock.ts";
import type { MessagePool, ServerMessages } from "../../base/memory-budget.ts";
import { type Machine, machineOf } from "../../core/policy.ts";
import type { SignRequest } from "../../core/signed-request.ts";
import type { EgressGuard } from "../../http/egress-guard.ts";
import type { Fetch } from "../../http/fetch.ts";
import type { HeaderList } from "../../http/headers.ts";
import type { TlsOptions } from "../../http/http-client.ts";
import type { Logger } from "../../record/log/logger.ts";
import { withoutSecrets } from "../../record/trace/redact.ts";
import { OpenApi } from "../openapi/api.ts";
import { OpenApiChannel } from "../openapi/openapi-channel.ts";
import type { OpenApiConfig } from "../openapi/openapi-config.ts";
import type { RoutedTarget, ServerError } from "../protocol/call.ts";
import { HttpChannel } from "../transports/http-transport.ts";
import { openRemoteServer, type RemoteServer } from "../transports/remote-server.ts";
import { openSseChannel } from "../transports/sse-transport.ts";
import { childEnvironment, childSecrets, openStdioChannel } from "../transports/stdio-transport.ts";
import type { Channel, ChannelHandlers } from "../transports/transport.ts";
import { ParamHeaders } from "./param-headers.ts";
import { type ProcessLimiter, type ProcessSlot, SpareProcesses } from "./process-pool.ts";
import { ServerFailures } from "./server-state.ts";
import type { McpConfig, TargetConfig } from "./target-config.ts";

export interface TargetOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly limiter: ProcessLimiter;
  readonly machine: Machine | undefined;
  readonly tls: TlsOptions | undefined;
  readonly egress: EgressGuard;
  readonly fetch: Fetch;
  readonly messages: MessagePool;
  relaysLogin(): boolean;
  signer(target: string): SignRequest | undefined;
  sizes(): MessageSizes;
}

export type MessageSizes = Pick<McpConfig, "maxRequestBytes" | "maxMessageBytes">;

export class Target implements RoutedTarget {
  readonly config: TargetConfig;
  readonly #options: TargetOptions;
  readonly #childEnv: Record<string, string>;
  readonly #secrets: readonly string[];
  /** Undefined until a handshake shows whether the server supports `initialize`. */
  speaks2025: boolean | undefined = undefined;
  /** Undefined until a handshake shows whether the server supports `server/discover`. */
  speaks2026: boolean | undefined = undefined;
  /** True if lists stopped waiting for a start of this server. A successful handshake resets the flag. */
  exceededStartWait = false;
  readonly params = new ParamHeaders();
  readonly failures: ServerFailures;
  #server: RemoteServer | undefined = undefined;
  #api: OpenApi | undefined = undefined;
  readonly messages: ServerMessages;
  readonly #spares: SpareProcesses | undefined;

  constructor(config: TargetConfig, options: TargetOptions) {
    this.config = config;
    this.#options = options;
    this.messages = options.messages.server();
    this.failures = new ServerFailures(options.clock);
    const environment = config.stdio ? machineOf(options, "start a process").environment : {};
    this.#childEnv = config.stdio ? childEnvironment(environment, config.stdio) : {};
    this.#secrets = config.stdio ? childSecrets(environment, config.stdio) : [];
    const { stdio, spares } = config;
    if (stdio && spares)
      this.#spares = new SpareProcesses(spares, options.limiter, options.clock, (handlers, slot) =>
        this.#child(stdio, handlers, slot),
      );
  }

  isDefinedBy(config: TargetConfig, tls: TlsOptions | undefined): boolean {
    const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);
    return same(config, this.config) && (config.stdio !== undefined || same(tls, this.#options.tls));
  }

  /** Changes whenever the configuration or the environment of the server changes. Contains secrets. */
  get definition(): string {
    return JSON.stringify([this.config, this.#childEnv]);
  }

  get name(): string {
    return this.config.name;
  }

  get address(): string {
    if (this.config.openapi) return this.#openApi(this.config.openapi).address;
    return this.config.stdio ? `stdio:${this.name}` : this.#remote().address;
  }

  shown(text: string): string {
    if (this.config.openapi) return this.#openApi(this.config.openapi).shown(text);
    return this.config.stdio ? withoutSecrets(text, this.#secrets) : this.#remote().shown(text);
  }

  /** Returns alternating names and values of the headers that the server receives from the client's request. */
  forwarded(headers: HeaderList): readonly string[] | undefined {
    const remote = this.config.mcp ?? this.config.sse ?? this.config.openapi;
    if (!remote) return undefined;
    const passed = remote.forwardHeaders.flatMap((name) => {
      const value = headers.get(name);
      return value === undefined ? [] : [name, value];
    });
    if (this.config.mcp?.identity) passed.push(...callerHeaders(headers, this.name));
    // 2026-07-28 servers require the mirrored parameters.
    if (!this.config.openapi)
      for (const name of headers.names())
        if (name.startsWith("mcp-param-")) passed.push(name, headers.get(name) as string);
    return passed.length === 0 ? undefined : passed;
  }

  close(): void {
    this.#spares?.close();
    this.#server?.close();
    this.#api?.close();
  }

  connect(
    handlers: ChannelHandlers,
    opened: (channel: Channel, started: () => void) => void,
    refused: (reason: string, error: ServerError) => void,
    client: string | undefined,
  ): () => void {
    const { stdio, sse, openapi } = this.config;
    if (openapi) {
      opened(new OpenApiChannel(this.#openApi(openapi), handlers), () => undefined);
      return () => undefined;
    }
    if (sse)
      return openSseChannel(
        this.#remote(),
        this.#options.clock,
        handlers,
        (channel) => opened(channel, () => undefined),
        (reason) => refused(reason, "backend_unavailable"),
      );
    if (!stdio) {
      opened(new HttpChannel(this.#remote(), this.#options.clock, handlers), () => undefined);
      return () => undefined;
    }
    const spare = this.#options.limiter.hasShare(client) ? this.#spares?.take(handlers, client) : undefined;
    if (spare) {
      opened(spare.channel, () => spare.started());
      return () => undefined;
    }
    return this.#options.limiter.enter(
      client,
      (slot) =>
        opened(this.#child(stdio, handlers, slot), () => {
          slot.started();
          this.#spares?.fill();
        }),
      (reason) => refused(reason, "overloaded"),
    );
  }

  warmUp(): void {
    this.#spares?.fill();
  }

  leave(): void {
    this.#spares?.close();
  }

  dropSpare(): boolean {
    return this.#spares?.drop() === true;
  }

  #child(stdio: NonNullable<TargetConfig["stdio"]>, handlers: ChannelHandlers, slot: ProcessSlot): Channel {
    const { clock, logger } = this.#options;
    const options = {
      name: this.name,
      cmd: stdio.cmd,
      args: stdio.args,
      cwd: stdio.cwd,
      env: this.#childEnv,
      secrets: this.#secrets,
      maxLineBytes: this.#options.sizes().maxMessageBytes,
      maxWriteBytes: this.#options.sizes().maxRequestBytes,
      messages: this.messages,
      clock,
      logger,
    };
    return openStdioChannel(options, handlers, slot);
  }

  #openApi(config: OpenApiConfig): OpenApi {
    const { clock, logger, fetch, tls, egress } = this.#options;
    this.#api ??= new OpenApi(config, {
      name: this.name,
      clock,
      logger,
      fetch,
      tls,
      egress,
      signer: () => this.#options.signer(this.name),
      maxMessageBytes: () => this.#options.sizes().maxMessageBytes,
      messages: this.messages,
    });
    return this.#api;
  }

  #remote(): RemoteServer {
    const options = this.config.mcp ?? this.config.sse;
    if (!options) throw new Error(`target ${this.name} is not remote`);
    this.#server ??= openRemoteServer(
      {
        ...options,
        relaysLogin: () => this.#options.relaysLogin(),
        egress: this.#options.egress,
        signer: () => this.#options.signer(this.name),
        maxMessageBytes: () => this.#options.sizes().maxMessageBytes,
        messages: this.messages,
      },
      this.#options.tls,
    );
    return this.#server;
  }
}

export function defaultConcurrentStarts(): number {
  return Math.max(1, cpus().length) * 4;
}

/** Maps target names to alternating names and values of one caller's identity headers. */
export type CallerHeaders = ReadonlyMap<string, readonly string[]>;

const callerHeadersByRequest = new WeakMap<HeaderList, CallerHeaders>();

/**
 * Attaches the caller's identity headers to one request. They are not part of the header list, so they are not logged
 * with it.
 */
export function setCallerHeaders(headers: HeaderList, given: CallerHeaders): void {
  callerHeadersByRequest.set(headers, given);
}

export function callerHeaders(headers: HeaderList, target: string): readonly string[] {
  return callerHeadersByRequest.get(headers)?.get(target) ?? [];
}
