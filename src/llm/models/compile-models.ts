/**
 * Compiles the three configuration layouts (`provider`, `groups`, and `models`) into one model table.
 */
import { suggestion } from "../../cel/values/nearest-name.ts";
import type { BackendEnv } from "../../core/backend.ts";
import type { CompiledScope } from "../../core/policy.ts";
import { matchPattern } from "../request/read-request.ts";
import type { AuthConfig } from "./credential.ts";
import {
  type ConditionInput,
  createModelTable,
  type ModelEntry,
  type ModelTable,
  modelScope,
  scopesWithoutFailover,
  type TargetGroup,
} from "./model-table.ts";
import { getPreset, PRESETS } from "./providers.ts";
import type {
  AiConfig,
  ModelConfig,
  ProviderConfig,
  SharedProviderConfig,
  VirtualModelConfig,
  WrittenModelConfig,
} from "./schema.ts";
import { type Cooldown, openTarget, type Target, type TargetOptions } from "./target.ts";

export function compileModels(config: AiConfig, env: BackendEnv): ModelTable {
  const { initial, max, maxRetryAfter, allowedFailures } = config.cooldown;
  const cooldown = { allowedFailures, initialMs: initial, maxMs: max, maxRetryAfterMs: maxRetryAfter };
  if (config.models) {
    const models = config.models.map((model) => withProvider(model, config.providers ?? []));
    return fromModels(models, config.virtualModels ?? [], cooldown, env);
  }
  if (config.virtualModels) throw new Error("`virtualModels` needs `models`");
  if (config.groups) {
    const groups = config.groups.map(({ providers }, i) => ({
      targets: providers.map((one, j) => {
        const target = openTarget(
          {
            ...targetOverrides(one),
            cooldown,
            name: one.name ?? `${env.name}/group${i}/provider${j}`,
            provider: one.provider,
          },
          env,
        );
        return { target, weight: one.weight, model: undefined };
      }),
    }));
    return createModelTable([{ name: "*", aliases: [], isPublic: true, groups }], false);
  }
  if (!config.provider) throw new Error("one of `provider`, `groups`, `models` is required");
  const target = openTarget(
    { ...targetOverrides(config), cooldown, name: config.name ?? env.name, provider: config.provider },
    env,
  );
  return createModelTable([{ name: "*", aliases: [], isPublic: true, groups: [single(target, undefined)] }], false);
}

/** Replaces a reference by the shared provider. The model's own parameters take precedence. */
function withProvider(model: WrittenModelConfig, shared: readonly SharedProviderConfig[]): ModelConfig {
  const { provider, params } = model;
  if (typeof provider === "string" || provider.reference === undefined) return { ...model, provider };
  const found = shared.find(({ name }) => name === provider.reference);
  if (found === undefined) throw new Error(`no entry in \`providers\` is named ${JSON.stringify(provider.reference)}`);
  return { ...model, provider: found.provider, params: { ...found.params, ...params } };
}

type Overrides = Pick<
  TargetOptions,
  "auth" | "hostOverride" | "pathOverride" | "pathPrefix" | "timeouts" | "perMinute"
>;

function targetOverrides({
  auth,
  hostOverride,
  pathOverride,
  pathPrefix,
  timeouts,
  perMinute,
}: Partial<Overrides>): Overrides {
  return { auth, hostOverride, pathOverride, pathPrefix, timeouts, perMinute };
}

function single(target: Target, model: string | undefined): TargetGroup {
  return { targets: [{ target, weight: 1, model }] };
}

function fromModels(
  models: readonly ModelConfig[],
  virtualModels: readonly VirtualModelConfig[],
  cooldown: Cooldown,
  env: BackendEnv,
): ModelTable {
  const byName = new Map<string, KnownModel>();
  const scopes = new Map<string, CompiledScope>();
  for (const config of models) {
    const scope = modelScope("model", config, env);
    if (scope === undefined) continue;
    if (scopes.has(config.name))
      throw new Error(
        `several entries of the model ${JSON.stringify(config.name)} have \`policies\`: keep them at one`,
      );
    scopes.set(config.name, scope);
  }
  const seen = new Map<string, number>();
  for (const config of models) {
    // Entries with the same name are deployments of one model.
    const nth = seen.get(config.name) ?? 0;
    seen.set(config.name, nth + 1);
    const target = openTarget(
      {
        ...targetOverrides(config.params),
        ...baseUrlOverrides(config),
        auth: readAuth(config),
        cooldown,
        name: nth === 0 ? config.name : `${config.name}#${nth + 1}`,
        provider: normalizeProvider(config),
        model: config.params.model,
      },
      env,
    );
    const isPattern = config.name.includes("*");
    // Without a configured model, the provider receives the entry's name, even if the client uses an alias.
    const model = config.params.model ?? target.model ?? (isPattern ? undefined : config.name);
    const known: KnownModel = byName.get(config.name) ?? { deployments: [], aliases: new Set(), isPublic: false };
    byName.set(config.name, known);
    known.deployments.push({ target, model, weight: config.weight, scope: scopes.get(config.name) });
    for (const alias of config.aliases ?? []) known.aliases.add(alias);
    known.isPublic ||= config.visibility === "public";
  }
  const entries: ModelEntry[] = [...byName].map(([name, { deployments, aliases, isPublic }]) => ({
    name,
    aliases: [...aliases],
    isPublic,
    groups: [{ targets: deployments }],
  }));
  for (const config of virtualModels) {
    const groups = virtualGroups(config, byName);
    for (const scope of scopesWithoutFailover(groups))
      env.warn(
        `the virtual model ${JSON.stringify(config.name)} does not fail over to ${scope.of}, which has policies of its own: put them on the virtual model`,
      );
    entries.unshift({
      name: config.name,
      aliases: [],
      isPublic: true,
      groups,
      scope: modelScope("virtual model", config, env),
      ...compileConditions(config, env),
    });
  }
  return createModelTable(entries, true);
}

type Deployment = TargetGroup["targets"][number];

interface KnownModel {
  readonly deployments: Deployment[];
  readonly aliases: Set<string>;
  isPublic: boolean;
}

function virtualGroups(config: VirtualModelConfig, models: ReadonlyMap<string, KnownModel>): TargetGroup[] {
  /** The deployments of a model share its weight. */
  const find = (name: string, weight: number): Deployment[] => {
    const share = (deployments: readonly Deployment[], starred: string | undefined): Deployment[] => {
      const total = deployments.reduce((sum, one) => sum + one.weight, 0);
      return deployments.map((one) => ({
        target: one.target,
        scope: one.scope,
        model: starred === undefined ? one.model : (one.model ?? name).replace("*", starred),
        weight: (weight * one.weight) / total,
      }));
    };
    const exact = models.get(name);
    if (exact && !name.includes("*")) return share(exact.deployments, undefined);
    for (const [pattern, { deployments }] of models) {
      const starred = matchPattern(pattern, name);
      if (starred !== undefined && !name.includes("*")) return share(deployments, starred);
    }
    throw new Error(
      `the virtual model ${JSON.stringify(config.name)} names ${JSON.stringify(name)}, which is not among \`models\`${suggestion(name, [...models.keys()])}`,
    );
  };
  const { weighted, failover, conditional } = config.routing;
  if (weighted) {
    const targets = weighted.targets
      .filter(({ weight }) => weight > 0)
      .flatMap(({ model, weight }) => find(model, weight));
    if (targets.length === 0) throw new Error(`all weights of the virtual model ${JSON.stringify(config.name)} are 0`);
    return [{ targets }];
  }
  if (conditional) return conditional.targets.map(({ model }) => ({ targets: find(model, 1) }));
  const targets = failover?.targets ?? [];
  const priorities = [...new Set(targets.map(({ priority }) => priority))].sort((a, b) => a - b);
  return priorities.map((rank) => ({
    targets: targets.filter(({ priority }) => priority === rank).flatMap(({ model, weight }) => find(model, weight)),
  }));
}

function compileConditions(
  { routing }: VirtualModelConfig,
  env: BackendEnv,
): Pick<ModelEntry, "accepts" | "isCheapestFirst"> {
  if (!routing.conditional) return {};
  const { targets, order } = routing.conditional;
  const accepts = targets.map(({ when, maxPromptTokens = Number.POSITIVE_INFINITY }) => {
    const condition = when === undefined ? undefined : env.cel(when);
    return (input: ConditionInput): boolean => {
      if (condition !== undefined) {
        const result = condition.evaluate(input.attributes);
        if (!result.ok || result.value !== true) return false;
      }
      return maxPromptTokens === Number.POSITIVE_INFINITY || input.promptTokens() <= maxPromptTokens;
    };
  });
  return { accepts, isCheapestFirst: order === "cheapest" };
}

/**
 * OpenAI-compatible providers use the base URL directly. For other providers, it replaces the host and the path prefix.
 */
function baseUrlOverrides({ provider, params }: ModelConfig): { hostOverride?: string; pathPrefix?: string } {
  const isCompatible =
    typeof provider === "string" ? provider === "openAI" || provider === "openai" || provider in PRESETS : false;
  if (params.baseUrl === undefined || isCompatible) return {};
  const url = new URL(params.baseUrl);
  return { hostOverride: url.origin, pathPrefix: url.pathname.replace(/\/+$/, "") };
}

function readAuth({ params }: ModelConfig): AuthConfig | undefined {
  if (params.awsAccessKeyId !== undefined || params.awsSecretAccessKey !== undefined) {
    if (params.awsAccessKeyId === undefined || params.awsSecretAccessKey === undefined)
      throw new Error("`awsAccessKeyId` and `awsSecretAccessKey` belong together");
    return {
      aws: {
        accessKeyId: params.awsAccessKeyId,
        secretAccessKey: params.awsSecretAccessKey,
        sessionToken: params.awsSessionToken,
      },
    };
  }
  return typeof params.apiKey === "string" ? { key: params.apiKey } : params.apiKey;
}

function normalizeProvider({ provider, params, name }: ModelConfig): ProviderConfig {
  if (typeof provider !== "string") return provider;
  const needed = (value: string | undefined, field: string): string => {
    if (value === undefined) throw new Error(`the model ${JSON.stringify(name)} needs \`params.${field}\``);
    return value;
  };
  switch (provider) {
    case "openAI":
    case "openai":
      return params.baseUrl === undefined
        ? { openAI: {} }
        : { openAICompatible: { baseUrl: params.baseUrl, name: "openai", streamUsage: true, responses: true } };
    case "anthropic":
      return { anthropic: {} };
    case "gemini":
      return { gemini: {} };
    case "demo":
      return { demo: {} };
    case "vertex":
      return {
        vertex: { projectId: needed(params.vertexProject, "vertexProject"), region: params.vertexRegion ?? "global" },
      };
    case "bedrock":
      return { bedrock: { region: needed(params.awsRegion, "awsRegion") } };
    case "azure":
      return {
        azure: {
          // `baseUrl` replaces the address that is made of the name.
          resourceName: params.baseUrl === undefined ? needed(params.azureResourceName, "azureResourceName") : "unused",
          resourceType: params.azureResourceType ?? "openAI",
          apiVersion: params.azureApiVersion,
        },
      };
    default: {
      const { baseUrl, streamUsage = true, responses = false } = getPreset(provider);
      return { openAICompatible: { baseUrl: params.baseUrl ?? baseUrl, name: provider, streamUsage, responses } };
    }
  }
}
