/**
 * Compiles a configuration to a Topology. It compiles policies and backends, sorts their hooks into the lists that the
 * pipeline runs, and applies the inheritable policies of a gateway to its routes. Errors keep their source position.
 */

import { readFileSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { backends } from "../../backends/index.ts";
import { fileProblem } from "../../base/files.ts";
import { type OwnedKey, ownedKey, processKey } from "../../base/owner.ts";
import { type ClaimMemory, claimAlone, ownedMemory, type SharedMemory } from "../../base/shared-memory.ts";
import { compileExpression } from "../../cel/expression.ts";
import { unknownFields } from "../../cel/values/unknown-fields.ts";
import type { BackendEnv } from "../../core/backend.ts";
import { ConfigError } from "../../core/config-error.ts";
import {
  type CompiledPolicy,
  type CompiledScope,
  type CompileEnv,
  type Hooks,
  type Machine,
  machineOf,
  type Protection,
  type Settings,
} from "../../core/policy.ts";
import type { Listener, ProxyProtocol, Route, TcpService, Topology, WeightedBackend } from "../../core/topology.ts";
import { parseProxiedHost } from "../../http/egress-addresses.ts";
import { EgressGuard } from "../../http/egress-guard.ts";
import { type Fetcher, guardedFetch } from "../../http/fetch.ts";
import type { ListenerTls } from "../../http/tls-listener.ts";
import { defined } from "../../json/json.ts";
import type { Phase } from "../../record/trace/record.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import { ownedStore } from "../../store/owned-store.ts";
import type { ProcessSigningKey } from "../../store/signing-key.ts";
import type { Store } from "../../store/store.ts";
import { ownerOf } from "../documents/documents.ts";
import {
  fieldPlace,
  type NormalBackend,
  type NormalConfig,
  type NormalGateway,
  type NormalRoute,
  type NormalTcpPart,
  type PlacedPolicy,
  type WrittenProxyProtocol,
} from "../load/normal-config.ts";
import { secretsInConfig } from "../schema/shown-config.ts";
import type { Environment } from "../text/env.ts";
import { pathText } from "../text/value-path.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import { compileCanary } from "./canary.ts";
import { definitionOf, rememberReplaced, scopeOf, shownPolicies } from "./compiled-scope.ts";
import { claimExtraMatches, readsCredential, trustedHosts } from "./extra-matches.ts";
import { readListenerTls } from "./listener-tls.ts";
import { namedOverrides } from "./named-overrides.ts";
import type { ConfigGeneration } from "./resource-registry.ts";
import { hiddenSources, traceEvaluations } from "./traced-expression.ts";

/** The content of a file with only one word of this length is hidden like a key. */
const KEY_FILE = /^\s*\S{8,512}\s*$/;

export interface CompileContext
  extends Pick<CompileEnv, "clock" | "logger" | "tasks" | "metrics" | "limits" | "memory" | "endpoints" | "dry"> {
  readonly fetcher: Pick<Fetcher, "of">;
  readonly shared?: SharedMemory | undefined;
  readonly store: Store;
  readonly signingKey: ProcessSigningKey;
  readonly redaction: Redaction;
  readonly generation: ConfigGeneration;
  readonly environment: Environment;
  /** Returns the guard for what an author may connect to, which in a dry run is nothing. */
  egress(author: "configuration" | "document"): EgressGuard;
  readonly internals?: Readonly<Record<string, unknown>>;
  fileRead(path: string): void;
}

export interface ResourceFailure {
  readonly policy: PlacedPolicy;
  readonly message: string;
}

export interface Compiled {
  readonly topology: Topology;
  readonly problems: readonly ConfigError[];
  readonly failures: readonly ResourceFailure[];
  readonly warnings: readonly ConfigError[];
}

export function compileConfig(config: NormalConfig, context: CompileContext): Compiled {
  const compiler = createCompiler(context);
  claimExtraMatches(config);
  try {
    const listeners = config.gateways.map((gateway) => compiler.listener(gateway, config.routes));
    const { problems, failures, warnings } = compiler;
    return { topology: { listeners }, problems, failures, warnings };
  } finally {
    compiler.release();
  }
}

/**
 * What an environment needs of its document. A resource keeps its environment when the document is replaced, so the
 * environment loses the document once the configuration is compiled.
 */
interface Origin {
  place: PlacedPolicy["place"] | undefined;
  scopeOf: BackendEnv["scopeOf"];
  warn: ((message: string) => void) | undefined;
}

function createCompiler(context: CompileContext) {
  const problems: ConfigError[] = [];
  const failures: ResourceFailure[] = [];
  const warnings: ConfigError[] = [];
  const complained = new Set<string>();
  /**
   * Set if a part of the current route that comes from a cluster failed to compile. The route then rejects all
   * requests.
   */
  let confinedFault: string | undefined;
  const origins: Origin[] = [];

  function listener(gateway: NormalGateway, routes: readonly NormalRoute[]): Listener {
    const whole = compileScopes(gateway);
    const sections = gateway.sections?.map((section) => ({ section, scopes: compileScopes(section) }));
    const { policies, unmatched } = whole;
    // Problems of the listener are reported before those of its routes.
    const tls = readTls(gateway);
    const proxyProtocol = gateway.proxyProtocol && compileProxyProtocol(gateway.proxyProtocol);
    const compiled = routes
      .filter((route) => route.gateways.includes(gateway.name))
      .map((route) => {
        const { inherited, own, closed } =
          sections?.find(({ section }) => section.name === route.section)?.scopes ?? whole;
        return compileRoute(route, inherited, own, closed);
      });
    return {
      name: gateway.name,
      address: gateway.address,
      port: gateway.port,
      protocol: gateway.protocol,
      tls,
      http2: gateway.http2,
      ...(gateway.forwardProxy === true ? { forwardProxy: true } : {}),
      ...defined({ proxyProtocol }),
      writtenAt: (field) => fieldPlace(gateway.place, field),
      policies,
      routes: compiled,
      unmatched,
      ...(compiled.some(({ protection }) => protection !== "none")
        ? { namedOverrides: new Set(compiled.flatMap((route) => [...route.namedOverrides])) }
        : {}),
      ...(gateway.tcp === undefined ? {} : { tcp: compileTcp(gateway, gateway.tcp) }),
      ...(sections === undefined
        ? {}
        : {
            sections: sections.map(({ section: { name, hostname }, scopes }) => ({
              name,
              hostname,
              policies: scopes.policies,
              unmatched: scopes.unmatched,
            })),
          }),
    };
  }

  function compileTcp({ protocol, place, closed }: NormalGateway, parts: readonly NormalTcpPart[]): TcpService {
    return {
      readsServerName: protocol === "TLS",
      parts: parts.map((part) => {
        const tls = readTls({ tls: part.tls, place });
        const isBroken = part.tls !== undefined && tls === undefined;
        return {
          name: part.name,
          hostname: part.hostname,
          tls,
          closed: closed ?? part.closed ?? (isBroken ? "its certificates are not valid" : undefined),
          routes: part.routes.map(({ backends: list, ...route }) => ({
            ...route,
            backends: list.map(({ name, address, dynamic, weight, isClosed, sendsProxyHeader = false }) => ({
              name,
              weight,
              isClosed,
              sendsProxyHeader,
              egress:
                dynamic !== undefined
                  ? EgressGuard.for("client", dynamic.allow)
                  : EgressGuard.for(address === undefined ? "services" : "configuration"),
              addresses: (serverName) => {
                if (dynamic !== undefined) return namedServer(serverName, dynamic.port);
                return address === undefined ? (context.endpoints?.addresses(name) ?? []) : [address];
              },
            })),
          })),
        };
      }),
    };
  }

  function compileScopes({ policies, closed }: Pick<NormalGateway, "policies" | "closed">) {
    const inherited = policies.filter((policy) => definitionOf(policy.kind).merge === "innermost");
    const own = policies.filter((policy) => definitionOf(policy.kind).merge !== "innermost");
    return {
      inherited,
      own,
      closed,
      policies: compileScope("gateway", own, [], closed),
      unmatched: compileScope("route", inherited, [], undefined),
    };
  }

  function compileRoute(
    route: NormalRoute,
    inherited: readonly PlacedPolicy[],
    gatewayPolicies: readonly PlacedPolicy[],
    closedGateway: string | undefined,
  ): Route {
    const kinds = new Set(route.policies.map(({ kind }) => kind));
    confinedFault = undefined;
    const placed = [
      ...inherited.filter(({ kind }) => !kinds.has(kind)),
      ...route.policies.filter((policy) => isUsable(policy, route.backends)),
    ];
    const prefixes = route.matches.flatMap(({ path }) =>
      "pathPrefix" in path ? [path.pathPrefix] : "exact" in path ? [path.exact] : [],
    );
    const whole = compileScope("route", placed, prefixes, route.closed);
    const guards = {
      trustedHosts: trustedHosts(route),
      requiresCredential: [...placed, ...gatewayPolicies].some(
        ({ kind, config }) => definitionOf(kind).requiresCredential?.(config) === true,
      ),
      readsCredential: [...placed, ...gatewayPolicies].some(readsCredential),
    };
    const list = route.backends
      .map((backend) => compileBackend(backend, guards, whole.settings, prefixes))
      .filter((one) => one !== undefined);
    const scope = confinedFault === undefined ? whole : compileScope("route", [], prefixes, confinedFault);
    return {
      name: route.name,
      hostnames: route.hostnames,
      ...defined({ except: route.except }),
      matches: route.matches,
      policies: scope,
      backends: list,
      totalWeight: list.reduce((sum, { weight }) => sum + weight, 0),
      protection: protectionOf(
        route,
        [...placed, ...gatewayPolicies, ...route.backends.flatMap(policiesOf)],
        closedGateway !== undefined || confinedFault !== undefined,
      ),
      namedOverrides: namedOverrides([
        route.matches,
        ...[...placed, ...gatewayPolicies].map(({ config }) => config),
        ...route.backends.flatMap((backend) => [backend.config, ...policiesOf(backend).map(({ config }) => config)]),
      ]),
      readsCredential: guards.readsCredential,
    };
  }

  function isUsable(policy: PlacedPolicy, list: readonly NormalBackend[]): boolean {
    const problem = policy.kind === "sessionPersistence" ? sessionConflict(list) : undefined;
    if (problem === undefined) return true;
    const refuse = (): never => {
      throw new Error(problem);
    };
    if (policy.isResource) compileResource(policy, refuse);
    else guarded(policy, refuse);
    return false;
  }

  function compileBackend(
    backend: NormalBackend,
    guards: Pick<BackendEnv, "trustedHosts" | "requiresCredential" | "readsCredential">,
    routeSettings: Settings,
    prefixes: readonly string[],
  ): WeightedBackend | undefined {
    const definition = backends.find(({ key }) => key === backend.key);
    if (!definition) return undefined;
    const scope = compileScope("backend", backend.policies, prefixes, backend.closed);
    const settings = { ...routeSettings, ...scope.settings };
    return guarded(backend, () => {
      const origin = originOf(backend.place, ({ name }) => {
        const inner = backend.inner?.find((one) => one.name === name);
        return { ...compileScope("backend", inner?.policies ?? [], prefixes, undefined, name), of: name };
      });
      const env: BackendEnv = {
        ...compileEnv(context, origin, backend.config, `backend ${backend.name}`, prefixes),
        name: backend.name,
        ...guards,
        ...context.internals,
        scopeOf: innerScopes(origin),
        tls: settings.backendTls,
        protocol: backend.protocol,
      };
      context.redaction.hideValues(secretsInConfig(definition.schema, backend.config, context.redaction));
      const compiled = definition.compile(backend.config, env);
      if (compiled.routing?.followsPicker !== true && backend.policies.some(({ kind }) => kind === "endpointPicker"))
        throw new Error("`endpointPicker` needs a `service` backend");
      const policies = { ...scope, settings };
      if (backend.canary === undefined) return { weight: backend.weight, backend: compiled, policies };
      const canary = compileCanary(backend.canary, backend.config, env);
      return { weight: 0, canary, backend: canary.watched(compiled), policies };
    });
  }

  function compileScope(
    phase: Phase,
    placed: readonly PlacedPolicy[],
    prefixes: readonly string[],
    closed: string | undefined,
    of?: string,
  ): CompiledScope {
    const compiled = new Map<PlacedPolicy, CompiledPolicy>();
    let closedBy = closed;
    for (const policy of placed) {
      context.redaction.hideValues(secretsInConfig(definitionOf(policy.kind).schema, policy.config, context.redaction));
      const compile = (): Hooks =>
        definitionOf(policy.kind).compile(
          policy.config,
          compileEnv(context, originOf(policy.place), policy.config, policy.owner, prefixes),
        );
      const hooks = policy.isResource ? compileResource(policy, compile) : guarded(policy, compile);
      if (hooks?.clients?.credentials) context.redaction.hideAlso(hooks.clients.credentials);
      for (const { name, source } of hooks?.computedHeaders ?? []) context.redaction.hideComputed(name, source);
      if (hooks) {
        const shown = rememberReplaced(hooks, context.redaction);
        compiled.set(policy, {
          kind: policy.kind,
          phase,
          hooks: shown,
          ...defined({ of }),
          writtenAt: (rule) => policyPosition(policy, rule),
        });
      }
      // An invalid security policy must not leave its target unprotected, so the target rejects all requests.
      else if (policy.isResource && definitionOf(policy.kind).role === "security")
        closedBy ??= `${policy.owner}: ${policy.kind}`;
    }
    return scopeOf(phase, placed, compiled, closedBy, shownPolicies(placed, context.redaction));
  }

  function originOf(place: PlacedPolicy["place"], innerScope?: NonNullable<BackendEnv["scopeOf"]>): Origin {
    const { document, path } = place;
    const warn = (message: string): void => {
      warnings.push(new ConfigError(document.position(path), pathText(path), message));
    };
    const origin = { place, scopeOf: innerScope, warn };
    origins.push(origin);
    return origin;
  }

  function release(): void {
    for (const origin of origins) Object.assign(origin, { place: undefined, scopeOf: undefined, warn: undefined });
  }

  function compileResource(policy: PlacedPolicy, compile: () => Hooks): Hooks | undefined {
    try {
      return compile();
    } catch (error) {
      const { message } = error as Error;
      if (!failures.some((known) => known.policy === policy)) failures.push({ policy, message });
      return undefined;
    }
  }

  function guarded<Result>({ place }: { place: PlacedPolicy["place"] }, compile: () => Result): Result | undefined {
    try {
      return compile();
    } catch (error) {
      const path = error instanceof ConfigError && error.path !== "" ? [...place.path, error.path] : place.path;
      const problem = new ConfigError(place.document.position(path), pathText(path), (error as Error).message);
      // An invalid document of a cluster must not affect other documents.
      if (place.document.confined) {
        confinedFault ??= problem.toLine();
        warnings.push(problem);
        return undefined;
      }
      // A route on two gateways is compiled twice, but its error is reported once.
      if (!complained.has(problem.toLine())) problems.push(problem);
      complained.add(problem.toLine());
      return undefined;
    }
  }

  function readTls({ tls, place }: Pick<NormalGateway, "tls" | "place">): ListenerTls | undefined {
    return (
      tls &&
      readListenerTls(tls, {
        at: (path, read) =>
          guarded({ place: { document: place.document, path: [...place.path, "tls", ...path] } }, read),
        readFile: (path) =>
          place.document.confined
            ? place.document.confined.readText(path)
            : readConfigFile(resolve(dirname(place.document.file), path), context.fileRead),
      })
    );
  }

  return { listener, release, problems, failures, warnings };
}

/** Not a function of the compiler, so that an environment refers to nothing of it. */
function compileEnv(
  context: CompileContext,
  origin: Origin,
  config: unknown,
  scopeName: string,
  matchedPrefixes: readonly string[],
): CompileEnv {
  const document = documentOf(origin);
  const { egress, machine } = surroundingsOf(document, context);
  const owner = ownerOf(document);
  const hidden = hiddenSources(config, context.redaction);
  const warn = (message: string): void => origin.warn?.(message);
  return {
    cel(source) {
      const expression = compileExpression(source, traceEvaluations(context.redaction, hidden.has(source)));
      for (const unknown of unknownFields(expression.paths)) warn(`cel: ${unknown}; reading it always fails`);
      return expression;
    },
    clock: context.clock,
    egress,
    fetch: guardedFetch(context.fetcher.of(owner), egress),
    logger: context.logger,
    tasks: context.tasks,
    metrics: context.metrics,
    limits: context.limits,
    memory: context.memory,
    shared: context.shared && ownedMemory(context.shared, owner),
    owner,
    store: ownedStore(context.store, owner),
    signingKey: context.signingKey.of(owner),
    scopeName,
    matchedPrefixes,
    machine,
    dry: context.dry,
    readFile(path, maxBytes) {
      const granted = documentOf(origin).confined;
      const text = granted
        ? granted.readText(path)
        : readConfigFile(machineOf({ machine }, "name files").resolvePath(path), context.fileRead, maxBytes);
      if (KEY_FILE.test(text)) context.redaction.hideValues([text.trim()]);
      return text;
    },
    endpoints: context.endpoints,
    acquire: (name, ...resource) => context.generation.acquire(ownedKey(owner, name), ...resource),
    acquireShared: (name, open, close) => {
      const key = processKey(name);
      const claim = claimOf(context.shared, key);
      return context.generation.acquire(key, undefined, () => open(claim), releasing(context.shared, key, close));
    },
    serving: (action) => context.generation.serving(action),
    warn,
  };
}

/** The only place that decides what the author of a document can reach outside of the configuration. */
function surroundingsOf(
  { file, confined }: SourceDocument,
  { egress, environment }: CompileContext,
): Pick<CompileEnv, "egress" | "machine"> {
  return confined === undefined
    ? { egress: egress("configuration"), machine: machineFor(dirname(file), environment) }
    : { egress: egress("document"), machine: undefined };
}

function machineFor(folder: string, environment: Environment): Machine {
  return { resolvePath: (path) => resolve(folder, path), environment };
}

function claimOf(shared: SharedMemory | undefined, key: OwnedKey): ClaimMemory {
  return (bytes) => (shared ? shared.claim(key, bytes) : claimAlone(bytes));
}

/** Not in the environment, because the resource keeps this function longer than the configuration that opened it. */
function releasing<Resource>(
  shared: SharedMemory | undefined,
  key: OwnedKey,
  close: ((resource: Resource) => void | Promise<void>) | undefined,
) {
  return (resource: Resource): void | Promise<void> => {
    shared?.release(key);
    return close?.(resource);
  };
}

function innerScopes(origin: Origin): NonNullable<BackendEnv["scopeOf"]> {
  return (inner) => origin.scopeOf?.(inner) ?? compileEnded();
}

function documentOf({ place }: Origin): PlacedPolicy["place"]["document"] {
  return place?.document ?? compileEnded();
}

function compileEnded(): never {
  throw new Error("the configuration is compiled: its documents cannot be read anymore");
}

/** Returns the reason if the backends of a route cannot have session persistence. */
function sessionConflict(list: readonly NormalBackend[]): string | undefined {
  if (list.some(({ canary }) => canary !== undefined)) return "a route with a `canary` cannot have session persistence";
  if (list.some(({ policies }) => policies.some(({ kind }) => kind === "endpointPicker")))
    return "a route with an `endpointPicker` cannot have session persistence, because the picker selects the server";
  return undefined;
}

/** A server name that could be read as another host is rejected. */
function namedServer(serverName: string | undefined, port: number): readonly string[] {
  return serverName === undefined || parseProxiedHost(serverName) === undefined ? [] : [`${serverName}:${port}`];
}

function compileProxyProtocol({ version, mode }: WrittenProxyProtocol): ProxyProtocol {
  return { versions: version === "all" ? ["v1", "v2"] : [version], isRequired: mode === "strict" };
}

/** Returns the position of the policy, or of its rule with the source `rule`. */
function policyPosition({ place: { document, path }, config }: PlacedPolicy, rule: string | undefined): string {
  const { rules } = config as { readonly rules?: readonly unknown[] };
  const index = rule === undefined || !Array.isArray(rules) ? -1 : rules.findIndex((one) => ruleSource(one) === rule);
  const at = (index < 0 ? undefined : document.position([...path, "rules", index])) ?? document.position(path, "key");
  return at === undefined ? document.file : `${at.file}:${at.line}:${at.column}`;
}

function ruleSource(rule: unknown): unknown {
  return typeof rule === "object" && rule !== null ? Object.values(rule)[0] : rule;
}

function protectionOf(route: NormalRoute, placed: readonly PlacedPolicy[], isClosed: boolean): Protection {
  if (isClosed || route.closed !== undefined || route.backends.some(({ closed }) => closed !== undefined))
    return "paths";
  const all = [
    ...placed.map(({ kind, config }) => definitionOf(kind).protection(config)),
    ...route.backends.map(({ key, config }) => backends.find((one) => one.key === key)?.protection(config) ?? "none"),
  ];
  return all.includes("paths") ? "paths" : all.includes("route") ? "route" : "none";
}

function policiesOf({ policies, inner = [] }: NormalBackend): readonly PlacedPolicy[] {
  return [...policies, ...inner.flatMap((scope) => scope.policies)];
}

/** Larger files are rejected by default. */
const MAX_FILE_BYTES = 1024 * 1024;

/** Calls `fileRead` even if the path cannot be read. */
export function readConfigFile(path: string, fileRead: (path: string) => void, maxBytes = MAX_FILE_BYTES): string {
  fileRead(path);
  let size: number;
  try {
    const status = statSync(path);
    if (!status.isFile()) throw new Error("it is not a regular file");
    size = status.size;
  } catch (error) {
    throw new Error(fileProblem(path, error));
  }
  if (size > maxBytes) throw new Error(`${path} is larger than ${maxBytes / (1024 * 1024)} MiB`);
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new Error(fileProblem(path, error));
  }
}
