/**
 * Converts a LiteLLM proxy configuration. `model_list` becomes `llm.models`, models with several deployments or
 * fallbacks become virtual models, and `mcp_servers` becomes `mcp`. Keys in LiteLLM's database are not converted.
 */
import { defined } from "../../json/json.ts";
import {
  asList,
  asObject,
  type Conversion,
  close,
  isObject,
  leaveOutOthers,
  newConversion,
  type Values,
} from "./conversion.ts";
import { type LitellmDocument, litellmDocument, withCredential } from "./litellm-document.ts";
import { Fault, type LitellmProvider, litellmProvider } from "./litellm-provider.ts";
import { TOOL_FILTERS, targetName, targetOf, toolFilters } from "./mcp-servers.ts";

/** Fields of the request that a deployment sets unless the client does. */
const DEFAULTS = [
  ...["temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "n", "reasoning_effort"],
  ...["presence_penalty", "frequency_penalty"],
];
const PARAMS = [
  ...["model", "custom_llm_provider", "api_key", "api_base", "base_url", "api_version", "aws_region_name"],
  ...["aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_bedrock_runtime_endpoint"],
  ...["aws_profile_name", "region_name", "vertex_project", "vertex_location", "vertex_credentials", "tenant_id"],
  ...["client_id", "client_secret", "organization", "extra_headers", "headers", "weight", "order", "rpm", "tpm"],
  ...["timeout", ...DEFAULTS],
];
/** Other parameters with such a name select the server or the credential, so a model with one of them is left out. */
const SELECTS_SERVER_OR_KEY =
  /^(?!.*(?:cost|limit|max_|budget))(?:.*_)?(?:base|url|endpoint|host|hostname|region|profile|role|credentials?|token|key|secret|username|password|oauth|proxy|identity|issuer|tenant|scope)(?:_.*)?$/;
/** LiteLLM's default. */
const DEFAULT_AZURE_VERSION = "2025-02-01-preview";
/** LiteLLM sends this key to servers with OpenAI's API if it has none. */
const NO_KEY = "fake-api-key";
const NO_COUNTERPART = "there is no counterpart";
const FALLBACKS = ["fallbacks", "context_window_fallbacks", "default_fallbacks"];
const SETTINGS = [
  ...FALLBACKS,
  "api_base",
  "api_key",
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
  /** Only a model with one deployment and without fallbacks can have policies. */
  readonly policies: Values;
  /** The parameters with those of the credential. */
  readonly given: Values;
  /** Names the setting without which the model must not be used. */
  readonly closedBy: string | undefined;
}

export function importLitellm(source: unknown): Conversion {
  const file = litellmDocument(source);
  const masterKey = file.own("LITELLM_MASTER_KEY");
  const general = {
    ...defined({ master_key: masterKey }),
    ...asObject(file.values.general_settings),
  };
  const document: Values = { ...file.values, general_settings: general };
  const conversion = newConversion();
  const deployments = new Map<string, Deployment[]>();
  for (const [index, entry] of asList(document.model_list).entries()) {
    if (!isObject(entry)) {
      conversion.leftOut.push(`model_list[${index}]: it is not an object`);
      continue;
    }
    const deployment = deploymentOf(entry, file, `model_list[${index}]`, conversion);
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
  leaveOutOthers(conversion, "", document, [...taken, "credential_list"], NO_COUNTERPART);
  for (const name of file.unused()) conversion.leftOut.push(`environment_variables.${name}: no setting here uses it`);
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
  const groups = new Map(
    [...deployments].map(([name, list]) => [name, groupOf(name, list, fallbacks.has(name), document)] as const),
  );
  for (const [name, list] of deployments) {
    const known = fallbacks.get(name) ?? [];
    const [only] = list;
    const add = (model: Values, closedBy: string | undefined): void => {
      models.push(model);
      if (closedBy !== undefined)
        close(conversion, model, `llm.models (${String(model.name)})`, `${closedBy} was not imported`);
    };
    const isAlone = list.length === 1 && known.length === 0;
    if (isAlone && only && !others.has(name)) {
      const { policies } = only;
      add({ name, ...only.model, ...(Object.keys(policies).length === 0 ? {} : { policies }) }, only.closedBy);
      continue;
    }
    // A call does not fail over between models with different policies.
    for (const field of new Set(list.flatMap(({ policies }) => fieldsOf(policies))))
      conversion.leftOut.push(
        `${field} of ${name}: it has several deployments or fallbacks, and such a model has no policies of its own`,
      );
    if (isAlone && only) {
      add({ name, ...only.model }, only.closedBy);
      continue;
    }
    for (const [index, { model, closedBy }] of list.entries())
      add({ name: `${name}-${index + 1}`, visibility: "internal", ...model }, closedBy);
    virtualModels.push({ name, routing: routingOf([name, ...known].map((group) => groups.get(group) ?? [])) });
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
    conversion.differs.push(
      "there is no `master_key` in the file, so any client that reaches the port can use the models. LITELLM_MASTER_KEY of LiteLLM's environment is not read here",
    );
  else
    conversion.differs.push("`master_key` gives access to the models only; `gwctl keys create` creates further keys");
  return {
    port: 4000,
    address: "127.0.0.1",
    ...sectionSettings(document),
    ...failoverOf(document, [...deployments.values()], conversion),
    models,
    ...(virtualModels.length > 0 ? { virtualModels } : {}),
  };
}

/** Without other fallbacks and groups, only prompts that are too long go to the models of `context_window_fallbacks`. */
function failoverOf(document: Values, groups: readonly (readonly Deployment[])[], conversion: Conversion): Values {
  const sections = ["router_settings", "litellm_settings"].map((section) => asObject(document[section]));
  const has = (kind: string): boolean => sections.some((section) => asList(section[kind]).length > 0);
  if (!has("context_window_fallbacks")) return {};
  if (!has("fallbacks") && !has("default_fallbacks") && groups.every((group) => group.length === 1))
    return { failoverOn: ["contextLength"] };
  conversion.differs.push(
    "context_window_fallbacks: these models are used after any failure, not only if a prompt is too long",
  );
  return {};
}

/** The parameters that became policies, by their names here. */
function fieldsOf(policies: Values): string[] {
  const set = asObject(asObject(policies.requestHeaderModifier).set);
  return [
    ...Object.keys(asObject(asObject(policies.ai).defaults)),
    ...Object.keys(set).map((name) => `header ${name}`),
  ];
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
  return key === undefined ? {} : { policies: { apiKey: { mode: "strict", keys: [{ key: String(key) }] } } };
}

interface Target {
  readonly model: string;
  /** Lower numbers are tried first. */
  readonly rank: number;
  readonly weight: number;
}

/** The targets of a group. LiteLLM tries `order` first, and a deployment without a weight only if the others failed. */
function groupOf(name: string, list: readonly Deployment[], hasFallbacks: boolean, document: Values): Target[] {
  const orders = [...new Set(list.map(({ given }) => Number(given.order ?? 0)))].sort((a, b) => a - b);
  const shares = sharesOf(list, document);
  return list.map(({ given }, index) => ({
    model: list.length === 1 && !hasFallbacks ? name : `${name}-${index + 1}`,
    rank: 2 * orders.indexOf(Number(given.order ?? 0)) + (shares[index] === 0 ? 1 : 0),
    weight: shares[index] || 1,
  }));
}

/** LiteLLM's default strategy distributes calls by the first of these fields that a deployment of the group sets. */
function sharesOf(list: readonly Deployment[], document: Values): number[] {
  const { routing_strategy: strategy = "simple-shuffle" } = asObject(document.router_settings);
  const field = ["weight", "rpm", "tpm"].find((one) => list.some(({ given }) => Number(given[one]) > 0));
  if (field === undefined || strategy !== "simple-shuffle") return list.map(() => 1);
  const numbers = list.map(({ given }) => Math.max(0, Number(given[field] ?? 0)) || 0);
  if (numbers.every(isWeight)) return numbers;
  const largest = Math.max(...numbers);
  return numbers.map((number) => (number === 0 ? 0 : Math.max(1, Math.round((number / largest) * 100))));
}

function isWeight(number: number): boolean {
  return Number.isInteger(number) && number <= 10_000;
}

function routingOf(groups: readonly (readonly Target[])[]): Values {
  const ranked = groups.flatMap((targets, index) =>
    targets.map((target) => ({ ...target, key: [index, target.rank] })),
  );
  const priorities = [...new Set(ranked.map(({ key }) => key.join()))];
  priorities.sort((a, b) => compareRanks(a.split(",").map(Number), b.split(",").map(Number)));
  if (priorities.length === 1) return { weighted: { targets: ranked.map(({ model, weight }) => ({ model, weight })) } };
  const targets = ranked.map(({ model, weight, key }) => ({
    model,
    priority: priorities.indexOf(key.join()),
    ...(weight === 1 ? {} : { weight }),
  }));
  return { failover: { targets } };
}

function compareRanks(
  [group = 0, rank = 0]: readonly number[],
  [otherGroup = 0, otherRank = 0]: readonly number[],
): number {
  return group - otherGroup || rank - otherRank;
}

/** The fallbacks of each model, in order. */
function fallbacksOf(document: Values, names: readonly string[], conversion: Conversion): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const add = (name: string, others: readonly string[]): void => {
    for (const other of others)
      if (!names.includes(other)) conversion.leftOut.push(`fallbacks of ${name}: there is no model ${other}`);
    const all = [...(found.get(name) ?? []), ...others].filter((other) => other !== name && names.includes(other));
    if (all.length > 0) found.set(name, [...new Set(all)]);
  };
  const sections = ["router_settings", "litellm_settings"].map((section) => asObject(document[section]));
  for (const kind of ["fallbacks", "context_window_fallbacks"])
    for (const entry of sections.flatMap((section) => asList(section[kind])))
      for (const [name, others] of Object.entries(asObject(entry))) {
        add(name, asList(others).map(String));
      }
  const standIns = sections.flatMap((section) => asList(section.default_fallbacks)).map(String);
  const defaults = [...(found.get("*") ?? []), ...standIns];
  found.delete("*");
  if (defaults.length > 0) for (const name of names) if (!found.has(name)) add(name, defaults);
  for (const name of found.keys())
    if (!names.includes(name)) conversion.leftOut.push(`fallbacks of ${name}: there is no such entry in model_list`);
  return found;
}

function deploymentOf(
  entry: Values,
  file: LitellmDocument,
  at: string,
  conversion: Conversion,
): Deployment | undefined {
  const leaveOut = (reason: string): undefined => {
    conversion.leftOut.push(`${at} (${String(entry.model_name)}): ${reason}`);
  };
  const given = withCredential(asObject(entry.litellm_params), file.values);
  if (typeof given === "string")
    return leaveOut(`its credential ${given} is not in credential_list: write its api_key and api_base`);
  const selecting = Object.keys(given).find((name) => !PARAMS.includes(name) && SELECTS_SERVER_OR_KEY.test(name));
  if (selecting !== undefined && given[selecting] !== false)
    return leaveOut(`${selecting} selects its server or its credential, and there is no counterpart`);
  const found = providerOf(entry, given, file);
  if (found instanceof Fault) return leaveOut(found.reason);
  const { known, prefix, baseUrl } = found;
  const model = found.model.replace(known === "bedrock" ? /^(?:converse|invoke)\// : /^responses\//, "");
  if (found.model.startsWith("responses/"))
    conversion.differs.push(
      `${at} (${String(entry.model_name)}): only requests of the Responses API use the Responses API of ${model}`,
    );
  const params: Values = { model, ...credentialOf(given, found, file) };
  const limits = defined({ requests: given.rpm, tokens: given.tpm });
  if (Object.keys(limits).length > 0) params.perMinute = limits;
  const firstByte = secondsText(given.timeout);
  if (firstByte !== undefined) params.timeouts = { firstByte };
  if (known !== undefined && baseUrl !== undefined) params.baseUrl = baseUrl;
  addProviderParams(params, given, known, file);
  leaveOutOthers(conversion, `${at}.litellm_params.`, given, [...PARAMS, ...PRICES], NO_COUNTERPART);
  const info = asObject(entry.model_info);
  const prices = PRICES.filter((name) => isSet(info[name]) || isSet(given[name]));
  if (prices.length > 0) conversion.leftOut.push(`${at}: prices are in a file here (llm.modelCatalog)`);
  leaveOutOthers(conversion, `${at}.model_info.`, info, [...PRICES, "id", "mode", "base_model"], NO_COUNTERPART);
  leaveOutOthers(conversion, `${at}.`, entry, ["model_name", "litellm_params", "model_info"], NO_COUNTERPART);
  const closedBy =
    DEPLOYMENT_PROTECTS.find((name) => isSet(given[name])) ?? MODEL_INFO_PROTECTS.find((name) => isSet(info[name]));
  const provider = known ?? { openAICompatible: { baseUrl, name: prefix } };
  return { model: { provider, params }, policies: policiesOf(given), given, closedBy };
}

/** LiteLLM uses the address of the deployment, then that of `litellm_settings`, then that of the environment. */
function providerOf(entry: Values, given: Values, file: LitellmDocument): LitellmProvider | Fault {
  const written = String(given.model ?? entry.model_name);
  const custom = typeof given.custom_llm_provider === "string" ? given.custom_llm_provider : undefined;
  const settings = asObject(file.values.litellm_settings);
  const addresses = [given.api_base, given.base_url, given.aws_bedrock_runtime_endpoint, settings.api_base];
  const base = addresses.find((address) => typeof address === "string" && address !== "");
  const found = litellmProvider(written, custom, base as string | undefined);
  if (base !== undefined) return found;
  const prefix = found instanceof Fault ? written.split("/", 1)[0] : found.prefix;
  const variable = String(custom ?? prefix).toUpperCase();
  const own = file.own(`${variable}_API_BASE`) ?? file.own(`${variable}_BASE_URL`);
  return own === undefined ? found : litellmProvider(written, custom, own);
}

/** Always sets a credential, because the gateway would forward the client's without one. LiteLLM does not. */
function credentialOf(given: Values, { known, prefix, keyVariable }: LitellmProvider, file: LitellmDocument): Values {
  const settings = asObject(file.values.litellm_settings);
  const key = [given.api_key, settings.api_key].find((value) => isSet(value) && value !== "");
  if (key !== undefined) return { apiKey: String(key) };
  const { tenant_id: tenantId, client_id: clientId, client_secret: clientSecret } = given;
  if (known === "azure" && clientId !== undefined)
    return { apiKey: { azure: defined({ tenantId, clientId, clientSecret }) } };
  if (known === "vertex") return { apiKey: { google: defined({ keyFile: given.vertex_credentials }) } };
  if (known === "bedrock") {
    const accessKey = given.aws_access_key_id ?? file.own("AWS_ACCESS_KEY_ID");
    return accessKey === undefined ? { apiKey: { aws: defined({ profile: given.aws_profile_name }) } } : {};
  }
  if (keyVariable !== undefined) return { apiKey: file.read(keyVariable) };
  const variable = `${prefix.toUpperCase()}_API_KEY`;
  return { apiKey: file.own(variable) ?? `\${${variable}:-${NO_KEY}}` };
}

function policiesOf(given: Values): Values {
  const defaults = defined(Object.fromEntries(DEFAULTS.map((name) => [name, given[name]])));
  const organization = defined({ "openai-organization": given.organization });
  const set = { ...organization, ...asObject(given.headers), ...asObject(given.extra_headers) };
  return {
    ...(Object.keys(defaults).length > 0 ? { ai: { defaults } } : {}),
    ...(Object.keys(set).length > 0 ? { requestHeaderModifier: { set } } : {}),
  };
}

function addProviderParams(params: Values, given: Values, known: string | undefined, file: LitellmDocument): void {
  if (known === "bedrock") {
    const region = given.aws_region_name ?? given.region_name ?? file.own("AWS_REGION_NAME");
    params.awsRegion = region ?? file.read("AWS_REGION");
    Object.assign(
      params,
      defined({
        awsAccessKeyId: given.aws_access_key_id ?? file.own("AWS_ACCESS_KEY_ID"),
        awsSecretAccessKey: given.aws_secret_access_key ?? file.own("AWS_SECRET_ACCESS_KEY"),
        awsSessionToken: given.aws_session_token ?? file.own("AWS_SESSION_TOKEN"),
      }),
    );
  } else if (known === "vertex") {
    params.vertexProject = given.vertex_project ?? file.read("VERTEXAI_PROJECT");
    const region = given.vertex_location ?? given.region_name ?? file.own("VERTEXAI_LOCATION");
    if (region !== undefined) params.vertexRegion = region;
  } else if (known === "azure") {
    const fromEnvironment = file.own("AZURE_API_VERSION") ?? `\${AZURE_API_VERSION:-${DEFAULT_AZURE_VERSION}}`;
    const version = isSet(given.api_version) ? String(given.api_version) : fromEnvironment;
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
  const text = String(value);
  if (type === "api_key") return { "x-api-key": text };
  if (type === "authorization") return { authorization: text };
  return { authorization: `${type === "basic" ? "Basic" : "Bearer"} ${text}` };
}
