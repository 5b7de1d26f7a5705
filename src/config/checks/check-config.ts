/**
 * Checks a valid configuration for settings that cannot work or are probably unintended.
 */

import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { ConfigError } from "../../core/config-error.ts";
import { boundAddress } from "../../http/backend-address.ts";
import { canonicalAddress, hostOf, isLoopbackHost } from "../../http/host.ts";
import { policies } from "../../policies/index.ts";
import type { NormalConfig, NormalGateway, NormalRoute, PlacedPolicy } from "../load/normal-config.ts";
import type { Path } from "../text/value-path.ts";
import { byPlace, type SourceDocument } from "../text/yaml-source.ts";
import { checkExpressions } from "./check-expressions.ts";
import { type Site, type SitedPolicy, sitedPolicies, type Warn, warningAt } from "./warnings.ts";

interface Checked {
  readonly warnings: readonly ConfigError[];
  readonly notes: readonly ConfigError[];
}

export function checkConfig(config: NormalConfig): Checked {
  const warnings: ConfigError[] = [];
  const notes: ConfigError[] = [];
  const warn = (warning: ConfigError): void => void warnings.push(warning);
  for (const sited of sitedPolicies(config)) {
    checkPolicy(sited, warn);
    checkAcceptedHeaders(sited, warn);
    checkExpressions(sited, warn);
  }
  checkCommands(config, warn);
  checkBackends(config, warn);
  checkOpenListeners(config, warn);
  noteSectionPorts(config, (note) => void notes.push(note));
  return { warnings: unique(warnings).sort(byPlace), notes };
}

/** Removes duplicates, for example of a document that is attached to two targets. */
function unique(list: readonly ConfigError[]): ConfigError[] {
  const lines = list.map((one) => one.toLine());
  return list.filter((_, i) => lines.indexOf(lines[i] as string) === i);
}

// Warns about a command line in `cmd`, for example `cmd: "npx -y x"`. No shell splits it, so starting the server would
// fail later.

interface Targets {
  readonly targets: readonly { readonly stdio?: { readonly cmd: string; readonly cwd?: string } }[];
}

function checkCommands(config: NormalConfig, warn: Warn): void {
  for (const { place, config: written } of config.routes
    .flatMap(({ backends }) => backends)
    .filter(({ key }) => key === "mcp")) {
    for (const [i, { stdio }] of (written as Targets).targets.entries()) {
      if (stdio === undefined || !/\s/.test(stdio.cmd.trim()) || isFile(stdio, place.document.file)) continue;
      const [program = ""] = stdio.cmd.trim().split(/\s/, 1);
      // The warning must not quote a secret such as `KEY=secret npx`.
      const example = /^[\w./@-]+$/.test(program) ? `\`cmd: ${program}\`` : "the program alone";
      warn(
        warningAt(
          place,
          ["targets", i, "stdio", "cmd"],
          `\`cmd\` is one program and no shell splits it: write ${example} and put the arguments in \`args\``,
        ),
      );
    }
  }
}

/** A path may contain spaces. */
function isFile({ cmd, cwd }: { readonly cmd: string; readonly cwd?: string }, file: string): boolean {
  return existsSync(resolve(dirname(file), cwd ?? "", cmd)) || existsSync(resolve(cmd));
}

// Warns about routes without a backend or policy that can respond.

const RESPONDING_POLICIES: ReadonlySet<string> = new Set(["directResponse", "requestRedirect"]);

function checkBackends({ gateways, routes }: NormalConfig, warn: Warn): void {
  for (const route of routes) {
    if (route.closed !== undefined || route.backends.some(({ weight }) => weight > 0)) continue;
    const own = [
      ...route.policies,
      ...gateways.filter(({ name }) => route.gateways.includes(name)).flatMap(policiesOf),
    ];
    if (own.some(respondsAlways)) continue;
    const what = route.backends.length === 0 ? "has no backend" : "has only backends with weight 0";
    warn(
      warningAt(
        route.place,
        route.backends.length === 0 ? [] : ["backends"],
        `the route ${what}, so its requests get 500: add \`backends\`, or a policy that responds (\`directResponse\`, \`requestRedirect\`)`,
      ),
    );
  }
}

/** A direct response that has a condition for each entry leaves the other requests to the backend. */
function respondsAlways({ kind, config }: PlacedPolicy): boolean {
  const { conditional } = config as { conditional?: readonly { condition?: string }[] };
  const isConditional = kind === "directResponse" && conditional?.every(({ condition }) => condition !== undefined);
  return RESPONDING_POLICIES.has(kind) && isConditional !== true;
}

function policiesOf({ policies: own }: NormalGateway): readonly PlacedPolicy[] {
  return own;
}

// Warns about MCP, LLM, and forward proxy routes that other machines reach without authentication, and notes the extra ports of the
// sections `mcp` and `llm`.

/** These backends act or spend money for their clients, but a plain proxy is often public on purpose. */
const GUARDED_BACKENDS: ReadonlySet<string> = new Set(["mcp", "ai", "dynamic"]);

function checkOpenListeners(config: NormalConfig, warn: Warn): void {
  for (const gateway of config.gateways) {
    if (gateway.closed !== undefined || isLoopback(gateway) || gateway.policies.some(checksIdentity)) continue;
    const open = config.routes.filter((route) => route.gateways.includes(gateway.name) && isOpen(route));
    if (open.length === 0) continue;
    const names = open.map(({ name }) => JSON.stringify(name)).join(", ");
    const what = `${open.length === 1 ? "route" : "routes"} ${names}`;
    warn(
      warningAt(
        gateway.place,
        [gateway.address === undefined ? "port" : "address"],
        `other machines can reach ${boundAddress(gateway.address, gateway.port)}, and ${what} ${open.length === 1 ? "asks" : "ask"} for no authentication: set \`address: 127.0.0.1\` or add an authentication policy`,
      ),
    );
  }
}

/** A section without a gateway opens its own port in addition to `gateways`. */
function noteSectionPorts(config: NormalConfig, note: Warn): void {
  const isSection = ({ place }: NormalGateway): boolean => place.path[0] !== "gateways" && place.path.length === 1;
  if (config.gateways.every(isSection)) return;
  for (const gateway of config.gateways.filter(isSection)) {
    const at = boundAddress(gateway.address, gateway.port);
    note(
      warningAt(
        gateway.place,
        ["port"],
        `listens on ${at}, a port of its own; \`gateway: <name>\` instead of \`port\` puts it on one of \`gateways\``,
      ),
    );
  }
}

function isLoopback({ address }: NormalGateway): boolean {
  return address !== undefined && isLoopbackHost(canonicalAddress(address));
}

function isOpen(route: NormalRoute): boolean {
  return (
    route.closed === undefined &&
    route.backends.some(({ key, policies: own }) => GUARDED_BACKENDS.has(key) && !own.some(checksIdentity)) &&
    !route.policies.some(checksIdentity)
  );
}

function checksIdentity({ kind, config }: PlacedPolicy): boolean {
  if (kind === "authorization") return true;
  return policies.find((policy) => policy.kind === kind)?.requiresCredential?.(config) === true;
}

// Warns about policies without effect, such as a token limit for MCP backends only, or tool rules without an MCP
// backend.

interface Idle {
  readonly policy: string;
  readonly backends: readonly string[];
  places(config: unknown): readonly Path[];
  readonly message: string;
}

interface Limits {
  readonly local?: readonly { readonly tokens?: number }[];
  readonly global?: { readonly descriptors: readonly { readonly type: string }[] };
}

const IDLE: readonly Idle[] = [
  {
    policy: "rateLimit",
    backends: ["ai", "host"],
    places: (config) => {
      const { local = [], global } = config as Limits;
      return [
        ...indexes(local, ({ tokens }) => tokens !== undefined).map((i) => ["local", i]),
        ...indexes(global?.descriptors ?? [], ({ type }) => type === "tokens").map((i) => ["global", "descriptors", i]),
      ];
    },
    message: "a token limit counts LLM calls, and no backend here takes any: use `requests`",
  },
  {
    policy: "budgets",
    backends: ["ai", "host"],
    places: () => [[]],
    message: "budgets count LLM calls, and no backend here takes any",
  },
  {
    policy: "mcpAuthorization",
    backends: ["mcp"],
    places: () => [[]],
    message: "these rules are for MCP servers, and no MCP backend is reached from here",
  },
  {
    policy: "mcpGuardrails",
    backends: ["mcp"],
    places: () => [[]],
    message: "these services get MCP messages, and no MCP backend is reached from here",
  },
  {
    policy: "backendAuth",
    backends: ["host", "service", "dynamic", "a2a"],
    places: (config) => ((config as { readonly aws?: unknown }).aws === undefined ? [] : [["aws"]]),
    message:
      "it signs requests to HTTP backends: set `aws` of the MCP server, or `auth` of the OpenAPI target or LLM provider",
  },
  {
    policy: "ai",
    backends: ["ai"],
    places: () => [[]],
    message: "this policy is for LLM calls, and no LLM backend is reached from here",
  },
];

/** Without `accept`, headers that the service does not set stay as the client sent them. */
function checkAcceptedHeaders({ policy }: SitedPolicy, warn: Warn): void {
  if (policy.kind !== "extAuthz") return;
  const { host, accept } = policy.config as { readonly host?: string; readonly accept?: readonly string[] };
  if (host === undefined || accept !== undefined) return;
  warn(
    warningAt(
      policy.place,
      [],
      "without `accept`, a header that the service does not set for a request stays as the client sent it; " +
        "list the headers that the service sets, or `accept: []` if it sets none",
    ),
  );
}

function checkPolicy({ policy, site }: SitedPolicy, warn: Warn): void {
  for (const row of IDLE) {
    if (row.policy !== policy.kind || canReach(site, row.backends)) continue;
    for (const path of row.places(policy.config)) warn(warningAt(policy.place, path, messageOf(row, policy)));
  }
}

function messageOf({ message }: Idle, { kind }: PlacedPolicy): string {
  return `${kind} has no effect here: ${message}`;
}

function canReach({ routes, backends }: Site, kinds: readonly string[]): boolean {
  return routes.length === 0 || backends.some(({ key }) => kinds.includes(key));
}

function indexes<Entry>(list: readonly Entry[], holds: (entry: Entry) => boolean): number[] {
  return list.flatMap((entry, i) => (holds(entry) ? [i] : []));
}

/** Warns about an admin address that other machines can reach, because the admin interface has no authentication. */
export function exposedAdminWarnings({ process }: NormalConfig, document: SourceDocument): ConfigError[] {
  const { adminAddr, allowConfigEdit } = process;
  if (adminAddr === undefined || adminAddr === "off" || adminAddr.startsWith("unix:")) return [];
  if (isLoopbackHost(canonicalAddress(hostOf(adminAddr)))) return [];
  const edits = allowConfigEdit === true ? ", change the configuration" : "";
  const message = `other machines can reach the admin interface at ${adminAddr}, which asks for no authentication: anyone who connects can read the configuration, requests, and traces${edits}, create API keys, and stop the gateway. Use a loopback address such as 127.0.0.1, or unix:<path>`;
  return [new ConfigError(document.position(["config", "adminAddr"]), "config.adminAddr", message)];
}
