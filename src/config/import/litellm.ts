/**
 * Converts a LiteLLM proxy configuration. `model_list` becomes `llm.models`, models with several deployments or
 * fallbacks become virtual models, and `mcp_servers` becomes `mcp`. Keys in LiteLLM's database are not converted.
 */
import {
  asList,
  asObject,
  type Conversion,
  close,
  defined,
  isObject,
  leaveOutOthers,
  newConversion,
  type Values,
} from "./conversion.ts";
import { Fault, litellmProvider } from "./litellm-provider.ts";
import { TOOL_FILTERS, targetName, targetOf, toolFilters } from "./mcp-servers.ts";

/** Fields of the request that a deployment sets unless the client does. */
const DEFAULTS = [
  ...["temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "n", "reasoning_effort"],
  ...["presence_penalty", "frequency_penalty"],
];
const PARAMS = [
  ...["model", "custom_llm_provider", "api_key", "api_base", "api_version", "aws_region_name", "aws_access_key_id"],
  ...["aws_secret_access_key", "aws_session_token", "vertex_project", "vertex_location", "weight", "order", "rpm"],
  ...["tpm", "timeout", ...DEFAULTS],
];
/** LiteLLM's default. */
const DEFAULT_AZURE_VERSION = "${AZURE_API_VERSION:-2025-02-01-preview}";
const NO_COUNTERPART = "there is no counterpart";
const FALLBACKS = ["fallbacks", "context_window_fallbacks", "default_fallbacks"];
const SETTINGS = [
  ...FALLBACKS,
  "model_group_alias",
  "drop_params",
  "request_timeout",
  "allowed_fails",
  "cooldown_time",
];
/** These settings restrict clients or content, so the sections are closed without them. */
const PROTECTS = [
  ...["custom_auth", "enable_jwt_auth", "enable_oauth2_auth", "allowed_ips", "guardrails", "prompt_injection_params"],
  ...["allowed_routes", "admin_only_routes", "blocked_user_list", "banned_keywords_list", "user_header_mappings"],
  ...["max_parallel_requests", "global_max_parallel_requests", "max_budget", "max_internal_user_budget"],
  ...["upperbound_key_generate_params", "default_team_settings", "mcp_access_groups", "max_request_size_mb"],
];
/** These callbacks check or change content. The others report calls. */
const GUARDS =
  /guard|moderation|lakera|presidio|hide_secrets|banned_keywords|blocked_user|injection|aporia|budget|rate/i;
/** These settings restrict one deployment, so its model is closed without them. */
const DEPLOYMENT_PROTECTS = ["max_budget", "budget_duration", "max_parallel_requests", "guardrails", "blocked"];
const MODEL_INFO_PROTECTS = ["access_groups", "team_id", "team_public_model_name", "access_via_team_ids", "blocked"];
const PRICES = ["input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost"];

interface Deployment {
  readonly model: Values;
  readonly defaults: Values;
  readonly weight: number;
  /** Names the setting without which the model must not be used. */
  readonly closedBy: string | undefined;
}

export function importLitellm(source: unknown): Conversion {
  const document = asObject(source);
  const conversion = newConversion();
  const deployments = new Map<string, Deployment[]>();
  for (const [index, entry] of asList(document.model_list).entries()) {
    if (!isObject(entry)) continue;
    const deployment = deploymentOf(entry, `model_list[${index}]`, conversion);
    if (!deployment) continue;
    const name = String(entry.model_name);
    deployments.set(name, [...(deployments.get(name) ?? []), deployment]);
  }
  const mcp = mcpOf(document, conversion);
  if (deployments.size === 0 && !mcp) throw new Error("there is no `model_list` with a model that can be taken over");
  if (deployments.size > 0) conversion.config.llm = llmOf(deployments, document, conversion);
  if (mcp) conversion.config.mcp = mcp;
  for (const name of missingProtections(document))
    for (const section of ["llm", "mcp"])
      if (isObject(conversion.config[section]))
        close(conversion, conversion.config[section], section, `${name} was not imported`);
  for (const section of ["litellm_settings", "router_settings"])
    leaveOutOthers(conversion, `${section}.`, asObject(document[section]), SETTINGS, NO_COUNTERPART);
  leaveOutOthers(conversion, "general_settings.", asObject(document.general_settings), ["master_key"], NO_COUNTERPART);
  const taken = ["model_list", "litellm_settings", "router_settings", "general_settings", "mcp_servers"];
  leaveOutOthers(conversion, "", document, taken, NO_COUNTERPART);
  return conversion;
}

function missingProtections(document: Values): string[] {
  const sections = [
    document,
    ...["general_settings", "litellm_settings", "router_settings"].map((one) => asObject(document[one])),
  ];
  const settings = PROTECTS.filter((name) => sections.some((section) => isSet(section[name])));
  const callbacks = asObject(document.litellm_settings).callbacks;
  const guards = asList(callbacks)
    .map(String)
    .filter((name) => GUARDS.test(name));
  return [...settings, ...guards.map((name) => `the callback ${name}`)];
}

function isSet(value: unknown): boolean {
  return value !== undefined && value !== null && value !== false;
}

function llmOf(deployments: ReadonlyMap<string, Deployment[]>, document: Values, conversion: Conversion): Values {
  const models: Values[] = [];
  const virtualModels: Values[] = [];
  const fallbacks = fallbacksOf(document, [...deployments.keys()], conversion);
  const others = new Set([...fallbacks.values()].flat());
  for (const [name, list] of deployments) {
    const wanted = fallbacks.get(name) ?? [];
    const known = wanted.filter((other) => deployments.has(other));
    for (const other of wanted)
      if (!deployments.has(other)) conversion.leftOut.push(`fallbacks of ${name}: there is no model ${other}`);
    const [only] = list;
    const add = (model: Values, closedBy: string | undefined): void => {
      models.push(model);
      if (closedBy !== undefined)
        close(conversion, model, `llm.models (${String(model.name)})`, `${closedBy} was not imported`);
    };
    const isAlone = list.length === 1 && known.length === 0;
    if (isAlone && only && !others.has(name)) {
      const { defaults } = only;
      const policies = Object.keys(defaults).length === 0 ? {} : { policies: { ai: { defaults } } };
      add({ name, ...only.model, ...policies }, only.closedBy);
      continue;
    }
    // A call does not fail over between models with different policies.
    for (const field of new Set(list.flatMap(({ defaults }) => Object.keys(defaults))))
      conversion.leftOut.push(`${field} of ${name}: models that stand in for each other have no defaults of their own`);
    if (isAlone && only) {
      add({ name, ...only.model }, only.closedBy);
      continue;
    }
    const own = list.map(({ model, weight, closedBy }, index) => {
      const part = `${name}-${index + 1}`;
      add({ name: part, visibility: "internal", ...model }, closedBy);
      return { model: part, weight };
    });
    virtualModels.push({
      name,
      routing: known.length === 0 ? { weighted: { targets: own } } : failover(own, known, deployments),
    });
    if (known.length > 0 && list.some(({ weight }) => weight !== 1))
      conversion.leftOut.push(`weight of ${name}: models of one priority share evenly`);
  }
  for (const [alias, given] of Object.entries(asObject(asObject(document.router_settings).model_group_alias))) {
    const name = isObject(given) ? given.model : given;
    const model = models.find((one) => one.name === name);
    const group = virtualModels.find((one) => one.name === name);
    if (model) model.aliases = [...asList(model.aliases), alias];
    else if (group) virtualModels.push({ ...group, name: alias });
    else conversion.leftOut.push(`router_settings.model_group_alias.${alias}: there is no model ${String(name)}`);
  }
  if (masterKey(document) === undefined)
    conversion.differs.push("there is no `master_key`, so any client that reaches the port can use the models");
  else
    conversion.differs.push("`master_key` gives access to the models only; `gwctl keys create` creates further keys");
  return {
    port: 4000,
    address: "127.0.0.1",
    ...sectionSettings(document),
    models,
    ...(virtualModels.length > 0 ? { virtualModels } : {}),
  };
}

/** LiteLLM's times are in seconds. */
function sectionSettings(document: Values): Values {
  const router = asObject(document.router_settings);
  const settings = { ...asObject(document.litellm_settings), ...router };
  const { allowed_fails, cooldown_time, drop_params, request_timeout } = settings;
  const pause = secondsText(cooldown_time);
  const cooldown = defined({ allowedFailures: allowed_fails, initial: pause, max: pause });
  const { policies } = protection(document);
  const requestTimeout = secondsText(request_timeout);
  const timeout = requestTimeout === undefined ? undefined : { requestTimeout };
  const all = defined({ ...asObject(policies), timeout });
  return defined({
    policies: Object.keys(all).length === 0 ? undefined : all,
    cooldown: Object.keys(cooldown).length === 0 ? undefined : cooldown,
    unsupported: drop_params === undefined ? undefined : drop_params === true ? "drop" : "refuse",
  });
}

function secondsText(value: unknown): string | undefined {
  return value === undefined || value === null ? undefined : `${String(value)}s`;
}

/** `master_key: null` turns authentication off. An empty key stays, so that the loader rejects it. */
function masterKey(document: Values): unknown {
  return asObject(document.general_settings).master_key ?? undefined;
}

function protection(document: Values): Values {
  const key = masterKey(document);
  return key === undefined ? {} : { policies: { apiKey: { mode: "strict", keys: [{ key: secret(key) }] } } };
}

/** The model's own deployments get priority 0, and those of its n-th fallback get priority n. */
function failover(
  own: readonly { model: string }[],
  others: readonly string[],
  deployments: ReadonlyMap<string, Deployment[]>,
): Values {
  const targets: Values[] = own.map(({ model }) => ({ model, priority: 0 }));
  for (const [index, other] of others.entries()) {
    const count = deployments.get(other)?.length ?? 0;
    const isAlone = count === 1;
    const names = isAlone ? [other] : Array.from({ length: count }, (_, part) => `${other}-${part + 1}`);
    for (const model of names) targets.push({ model, priority: index + 1 });
  }
  return { failover: { targets } };
}

/** The fallbacks of each model, in order. */
function fallbacksOf(document: Values, names: readonly string[], conversion: Conversion): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const add = (name: string, others: readonly string[]): void => {
    const all = [...(found.get(name) ?? []), ...others].filter((other) => other !== name);
    found.set(name, [...new Set(all)]);
  };
  const sections = ["router_settings", "litellm_settings"].map((section) => asObject(document[section]));
  for (const kind of ["fallbacks", "context_window_fallbacks"])
    for (const entry of sections.flatMap((section) => asList(section[kind])))
      for (const [name, others] of Object.entries(asObject(entry))) {
        add(name, asList(others).map(String));
        if (kind !== "fallbacks")
          conversion.differs.push(
            `${kind} of ${name}: the other models are used after any failure, not only if a prompt is too long`,
          );
      }
  const standIns = sections.flatMap((section) => asList(section.default_fallbacks)).map(String);
  if (standIns.length > 0) for (const name of names) if (!standIns.includes(name)) add(name, standIns);
  return found;
}

function deploymentOf(entry: Values, at: string, conversion: Conversion): Deployment | undefined {
  const given = asObject(entry.litellm_params);
  const written = String(given.model ?? entry.model_name);
  const base = typeof given.api_base === "string" && given.api_base !== "" ? secret(given.api_base) : undefined;
  const custom = typeof given.custom_llm_provider === "string" ? given.custom_llm_provider : undefined;
  const found = litellmProvider(written, custom, base);
  if (found instanceof Fault) {
    conversion.leftOut.push(`${at} (${String(entry.model_name)}): ${found.reason}`);
    return undefined;
  }
  const { known, prefix, baseUrl } = found;
  const params: Values = { model: found.model.replace(/^(?:converse|invoke)\//, "") };
  if (isSet(given.api_key)) params.apiKey = secret(given.api_key);
  else if (found.keyVariable !== undefined) params.apiKey = `\${${found.keyVariable}}`;
  const limits = defined({ requests: given.rpm ?? undefined, tokens: given.tpm ?? undefined });
  if (Object.keys(limits).length > 0) params.perMinute = limits;
  const firstByte = secondsText(given.timeout);
  if (firstByte !== undefined) params.timeouts = { firstByte };
  if (known !== undefined && baseUrl !== undefined) params.baseUrl = baseUrl;
  addProviderParams(params, given, known);
  if (base?.startsWith("${") && baseUrl !== base)
    conversion.differs.push(`${at}.litellm_params.api_base: the value of ${base} must not end with a slash`);
  leaveOutOthers(conversion, `${at}.litellm_params.`, given, [...PARAMS, ...PRICES], NO_COUNTERPART);
  const info = asObject(entry.model_info);
  const prices = PRICES.filter((name) => isSet(info[name]) || isSet(given[name]));
  if (prices.length > 0) conversion.leftOut.push(`${at}: prices are in a file here (llm.modelCatalog)`);
  leaveOutOthers(conversion, `${at}.model_info.`, info, [...PRICES, "id", "mode", "base_model"], NO_COUNTERPART);
  leaveOutOthers(conversion, `${at}.`, entry, ["model_name", "litellm_params", "model_info"], NO_COUNTERPART);
  const closedBy =
    DEPLOYMENT_PROTECTS.find((name) => isSet(given[name])) ?? MODEL_INFO_PROTECTS.find((name) => isSet(info[name]));
  const provider = known ?? { openAICompatible: { baseUrl, name: prefix } };
  const defaults = defined(Object.fromEntries(DEFAULTS.map((name) => [name, given[name] ?? undefined])));
  return { model: { provider, params }, defaults, weight: Number(given.weight ?? 1), closedBy };
}

function addProviderParams(params: Values, given: Values, known: string | undefined): void {
  if (known === "bedrock") {
    params.awsRegion = given.aws_region_name === undefined ? "${AWS_REGION}" : secret(given.aws_region_name);
    if (given.aws_access_key_id !== undefined) params.awsAccessKeyId = secret(given.aws_access_key_id);
    if (given.aws_secret_access_key !== undefined) params.awsSecretAccessKey = secret(given.aws_secret_access_key);
    if (given.aws_session_token !== undefined) params.awsSessionToken = secret(given.aws_session_token);
  } else if (known === "vertex") {
    params.vertexProject = given.vertex_project === undefined ? "${VERTEXAI_PROJECT}" : secret(given.vertex_project);
    if (given.vertex_location !== undefined) params.vertexRegion = secret(given.vertex_location);
  } else if (known === "azure") {
    const version = isSet(given.api_version) ? secret(given.api_version) : DEFAULT_AZURE_VERSION;
    params.azureApiVersion = version === "latest" ? "v1" : version;
    const base = params.baseUrl ?? "${AZURE_API_BASE}/openai";
    params.baseUrl = ["v1", "preview", "latest"].includes(version) ? `${base}/v1` : base;
  }
}

function mcpOf(document: Values, conversion: Conversion): Values | undefined {
  const servers = Object.entries(asObject(document.mcp_servers)).filter(([, entry]) => isObject(entry));
  if (servers.length === 0) return undefined;
  let closedBy: string | undefined;
  const targets = servers.flatMap(([key, entry]) => {
    const server = asObject(entry);
    const { url, transport, command, args, env, headers, extra_headers, auth_type, auth_value, ...others } = server;
    const sent = { ...credentialHeaders(auth_type, auth_value ?? others.authentication_token), ...asObject(headers) };
    const target = targetOf(
      { ...toolFilters(others), url, transport, command, args, env, headers: sent },
      targetName(key, conversion),
      conversion,
    );
    if (!target) conversion.leftOut.push(`mcp_servers.${key}: it has neither \`url\` nor \`command\``);
    if (isSet(auth_type) && auth_type !== "none" && !isSet(auth_value ?? others.authentication_token))
      conversion.leftOut.push(`mcp_servers.${key}.auth_type: ${NO_COUNTERPART}`);
    closedBy ??= SERVER_PROTECTS.find((name) => isSet(others[name]));
    const forwarded = asList(extra_headers).map(String);
    const remote = asObject(target?.mcp ?? target?.sse);
    if (forwarded.length > 0 && target && !target.stdio) remote.forwardHeaders = forwarded;
    const taken = ["description", "authentication_token", ...TOOL_FILTERS];
    leaveOutOthers(conversion, `mcp_servers.${key}.`, others, taken, NO_COUNTERPART);
    return target ? [target] : [];
  });
  if (targets.length === 0) return undefined;
  const mcp: Values = { port: 3000, address: "127.0.0.1", ...protection(document), targets };
  if (closedBy !== undefined) close(conversion, mcp, "mcp", `${closedBy} of a server was not imported`);
  return mcp;
}

const SERVER_PROTECTS = ["access_groups", "mcp_access_groups", "allowed_params", "allowed_users", "allowed_teams"];

/** The types of LiteLLM with a fixed credential. Others need a login of each user. */
function credentialHeaders(type: unknown, value: unknown): Values {
  if (value === undefined) return {};
  const text = secret(value);
  if (type === "api_key") return { "x-api-key": text };
  if (type === "authorization") return { authorization: text };
  return { authorization: `${type === "basic" ? "Basic" : "Bearer"} ${text}` };
}

/** Rewrites `os.environ/NAME` to `${NAME}`. */
function secret(value: unknown): string {
  return String(value).replace(/^os\.environ\/(\w+)$/, (_, name: string) => `\${${name}}`);
}
