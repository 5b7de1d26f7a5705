/**
 * One configured server: how to bring up a connection to it, and what is known of it. Connections belong to
 * sessions; what a server speaks is remembered here, so that it is found out once.
 */
import { cpus } from "node:os";
import type { Clock } from "../../base/clock.ts";
import type { MessagePool, ServerMessages } from "../../base/memory-budget.ts";
import type { Fetch } from "../../http/fetch.ts";
import type { HeaderList } from "../../http/headers.ts";
import type { TlsOptions } from "../../http/http-client.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { withoutSecrets } from "../../observe/trace/redact.ts";
import { OpenApi } from "../openapi/api.ts";
import { OpenApiChannel } from "../openapi/openapi-channel.ts";
import type { OpenApiConfig } from "../openapi/openapi-config.ts";
import type { RoutedTarget, ServerError } from "../protocol/call.ts";
import { HttpChannel } from "../transports/http-transport.ts";
import { openRemoteServer, type RemoteServer } from "../transports/remote-server.ts";
import { openSseChannel } from "../transports/sse-transport.ts";
import { childEnvironment, type Environment, openStdioChannel, secretsOf } from "../transports/stdio-transport.ts";
import type { Channel, ChannelHandlers } from "../transports/transport.ts";
import { ParamHeaders } from "./param-headers.ts";
import { type ProcessLimiter, SpareProcesses } from "./process-pool.ts";
import { ServerFailures } from "./server-state.ts";
import type { McpConfig, TargetConfig } from "./target-config.ts";

export interface TargetOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly gate: ProcessLimiter;
  /** Of the gateway itself. */
  readonly environment: Environment;
  readonly tls: TlsOptions | undefined;
  /** A document of a cluster names the server. */
  readonly isConfined?: boolean | undefined;
  readonly fetch: Fetch;
  /** Where large messages of servers are charged. */
  readonly messages: MessagePool;
  /** Whether challenges of a remote server are for its clients. */
  relaysLogin(): boolean;
  /** The limits of messages in both directions, as they are configured now. */
  sizes(): MessageSizes;
}

export type MessageSizes = Pick<McpConfig, "maxRequestBytes" | "maxMessageBytes">;

export class Target implements RoutedTarget {
  readonly config: TargetConfig;
  readonly #env: TargetOptions;
  readonly #childEnv: Record<string, string>;
  readonly #secrets: readonly string[];
  /** Whether the server answers `initialize`; undefined until it was asked. */
  speaksLegacy: boolean | undefined = undefined;
  /** Whether it answers `server/discover`. */
  speaksModern: boolean | undefined = undefined;
  /** Parameters of its tools that headers repeat. */
  readonly params = new ParamHeaders();
  readonly failures: ServerFailures;
  #server: RemoteServer | undefined = undefined;
  #api: OpenApi | undefined = undefined;
  readonly #messages: ServerMessages;
  readonly #spares: SpareProcesses | undefined;

  constructor(config: TargetConfig, env: TargetOptions) {
    this.config = config;
    this.#env = env;
    this.#messages = env.messages.server();
    this.failures = new ServerFailures(env.clock);
    this.#childEnv = config.stdio ? childEnvironment(env.environment, config.stdio) : {};
    this.#secrets = config.stdio ? secretsOf(env.environment, config.stdio) : [];
    const { stdio, spares } = config;
    if (stdio && spares)
      this.#spares = new SpareProcesses(spares, {
        clock: env.clock,
        slot: () => env.gate.spare(),
        open: (handlers, gone) => this.#child(stdio, handlers, gone),
      });
  }

  isDefinedBy(config: TargetConfig, tls: TlsOptions | undefined): boolean {
    const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);
    return same(config, this.config) && (config.stdio !== undefined || same(tls, this.#env.tls));
  }

  get name(): string {
    return this.config.name;
  }

  /** For the trace: `stdio:<name>` or `host:port`. */
  get address(): string {
    if (this.config.openapi) return this.#openApi(this.config.openapi).address;
    return this.config.stdio ? `stdio:${this.name}` : this.#remote().address;
  }

  /** What the server says, without the secrets of its configuration. */
  shown(text: string): string {
    if (this.config.openapi) return this.#openApi(this.config.openapi).shown(text);
    return this.config.stdio ? withoutSecrets(text, this.#secrets) : this.#remote().shown(text);
  }

  /** Headers of the client that the configuration lets through: name, value, … */
  forwarded(headers: HeaderList): readonly string[] | undefined {
    const remote = this.config.mcp ?? this.config.sse ?? this.config.openapi;
    if (!remote) return undefined;
    const passed = remote.forwardHeaders.flatMap((name) => {
      const value = headers.get(name);
      return value === undefined ? [] : [name, value];
    });
    if (this.config.mcp?.identity) passed.push(...callerHeaders(headers, this.name));
    // Parameters that a modern server wants mirrored in headers; whoever does not know them passes them on.
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
        this.#env.clock,
        handlers,
        (channel) => opened(channel, () => undefined),
        (reason) => refused(reason, "backend_unavailable"),
      );
    if (!stdio) {
      opened(new HttpChannel(this.#remote(), this.#env.clock, handlers), () => undefined);
      return () => undefined;
    }
    const spare = this.#env.gate.hasShare(client) ? this.#spares?.take(handlers, client) : undefined;
    if (spare) {
      opened(spare.channel, () => spare.started());
      return () => undefined;
    }
    return this.#env.gate.enter(
      client,
      (slot) =>
        opened(
          this.#child(stdio, handlers, () => slot.released()),
          () => {
            slot.started();
            this.#spares?.fill();
          },
        ),
      (reason) => refused(reason, "overloaded"),
    );
  }

  /** Starts the children that are to wait for sessions. */
  warmUp(): void {
    this.#spares?.fill();
  }

  /** Sessions that have it may go on for long; no new one gets it, so that nothing needs to wait for one. */
  leave(): void {
    this.#spares?.close();
  }

  /** Ends a child that waits for a session. False if there is none. */
  dropSpare(): boolean {
    return this.#spares?.drop() === true;
  }

  #child(stdio: NonNullable<TargetConfig["stdio"]>, handlers: ChannelHandlers, gone: () => void): Channel {
    const { clock, logger } = this.#env;
    const options = {
      name: this.name,
      cmd: stdio.cmd,
      args: stdio.args,
      cwd: stdio.cwd,
      env: this.#childEnv,
      secrets: this.#secrets,
      maxLineBytes: this.#env.sizes().maxMessageBytes,
      maxWriteBytes: this.#env.sizes().maxRequestBytes,
      messages: this.#messages,
      clock,
      logger,
    };
    return openStdioChannel(options, handlers, gone);
  }

  #openApi(config: OpenApiConfig): OpenApi {
    const { clock, logger, fetch, tls, isConfined } = this.#env;
    this.#api ??= new OpenApi(config, {
      name: this.name,
      clock,
      logger,
      fetch,
      tls,
      isConfined,
      maxMessageBytes: () => this.#env.sizes().maxMessageBytes,
    });
    return this.#api;
  }

  #remote(): RemoteServer {
    const options = this.config.mcp ?? this.config.sse;
    if (!options) throw new Error(`target ${this.name} is not remote`);
    this.#server ??= openRemoteServer(
      {
        ...options,
        relaysLogin: () => this.#env.relaysLogin(),
        isConfined: this.#env.isConfined,
        maxMessageBytes: () => this.#env.sizes().maxMessageBytes,
        messages: this.#messages,
      },
      this.#env.tls,
    );
    return this.#server;
  }
}

export function defaultConcurrentStarts(): number {
  return Math.max(1, cpus().length) * 4;
}

/** Name, value, … by the target's name. */
export type CallerHeaders = ReadonlyMap<string, readonly string[]>;

const ofRequests = new WeakMap<HeaderList, CallerHeaders>();

export function setCallerHeaders(headers: HeaderList, given: CallerHeaders): void {
  ofRequests.set(headers, given);
}

export function callerHeaders(headers: HeaderList, target: string): readonly string[] {
  return ofRequests.get(headers)?.get(target) ?? [];
}
