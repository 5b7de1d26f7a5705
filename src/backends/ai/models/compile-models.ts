/**
 * From the three ways of writing (`provider`, `groups`, `models`) to one table of models.
 */
import type { BackendEnv } from "../../../core/backend.ts";
import type { AuthConfig } from "../credentials/auth-schema.ts";
import { createModelTable, type ModelEntry, type ModelTable, matchPattern, type TargetGroup } from "./model-table.ts";
import { type AiConfig, type ModelConfig, PRESETS, type ProviderConfig, type VirtualModelConfig } from "./schema.ts";
import { openTarget, type Target } from "./target.ts";

export function compileModels(config: AiConfig, env: BackendEnv): ModelTable {
  if (config.models) return fromModels(config.models, config.virtualModels ?? [], env);
  if (config.virtualModels) throw new Error("`virtualModels` needs `models`");
  if (config.groups) {
    const groups = config.groups.map(({ providers }, i) => ({
      targets: providers.map((one, j) => {
        const target = openTarget(
          { ...written(one), name: one.name ?? `${env.name}/group${i}/provider${j}`, provider: one.provider },
          env,
        );
        return { target, weight: one.weight, model: undefined };
      }),
    }));
    return createModelTable([{ name: "*", aliases: [], isPublic: true, groups }], false);
  }
  if (!config.provider) throw new Error("one of `provider`, `groups`, `models` is needed");
  const target = openTarget({ ...written(config), name: config.name ?? env.name, provider: config.provider }, env);
  return createModelTable([{ name: "*", aliases: [], isPublic: true, groups: [single(target, undefined)] }], false);
}

function written(config: {
  auth?: AuthConfig | undefined;
  hostOverride?: string | undefined;
  pathOverride?: string | undefined;
  pathPrefix?: string | undefined;
}) {
  const { auth, hostOverride, pathOverride, pathPrefix } = config;
  return { auth, hostOverride, pathOverride, pathPrefix };
}

function single(target: Target, model: string | undefined): TargetGroup {
  return { targets: [{ target, weight: 1, model }] };
}

function fromModels(
  models: readonly ModelConfig[],
  virtualModels: readonly VirtualModelConfig[],
  env: BackendEnv,
): ModelTable {
  const entries: ModelEntry[] = [];
  const byName = new Map<string, KnownModel>();
  for (const config of models) {
    const target = openTarget(
      {
        ...written(config.params),
        ...baseOf(config),
        auth: authOf(config),
        name: config.name,
        provider: providerOf(config),
        model: config.params.model,
      },
      env,
    );
    const isPattern = config.name.includes("*");
    // Through an alias the provider still gets the model's own name.
    const model = config.params.model ?? target.model ?? (isPattern ? undefined : config.name);
    if (!byName.has(config.name)) byName.set(config.name, { target, model });
    entries.push({
      name: config.name,
      aliases: config.aliases ?? [],
      isPublic: config.visibility === "public",
      groups: [single(target, model)],
    });
  }
  for (const config of virtualModels)
    entries.unshift({ name: config.name, aliases: [], isPublic: true, groups: virtualGroups(config, byName) });
  return createModelTable(entries, true);
}

interface KnownModel {
  readonly target: Target;
  readonly model: string | undefined;
}

function virtualGroups(config: VirtualModelConfig, models: ReadonlyMap<string, KnownModel>): TargetGroup[] {
  const find = (name: string): KnownModel => {
    const exact = models.get(name);
    if (exact && !name.includes("*")) return exact;
    for (const [pattern, { target, model }] of models) {
      const starred = matchPattern(pattern, name);
      if (starred !== undefined && !name.includes("*")) return { target, model: (model ?? name).replace("*", starred) };
    }
    throw new Error(
      `the virtual model ${JSON.stringify(config.name)} names ${JSON.stringify(name)}, which is not among \`models\``,
    );
  };
  const { weighted, failover } = config.routing;
  if (weighted) {
    const targets = weighted.targets
      .filter(({ weight }) => weight > 0)
      .map(({ model, weight }) => ({ ...find(model), weight }));
    if (targets.length === 0) throw new Error(`all weights of the virtual model ${JSON.stringify(config.name)} are 0`);
    return [{ targets }];
  }
  const targets = failover?.targets ?? [];
  const priorities = [...new Set(targets.map(({ priority }) => priority))].sort((a, b) => a - b);
  return priorities.map((rank) => ({
    targets: targets.filter(({ priority }) => priority === rank).map(({ model }) => ({ ...find(model), weight: 1 })),
  }));
}

/** A base URL for a provider with an API of its own is another host and another beginning of its paths. */
function baseOf({ provider, params }: ModelConfig): { hostOverride?: string; pathPrefix?: string } {
  const isCompatible =
    typeof provider === "string" ? provider === "openAI" || provider === "openai" || provider in PRESETS : false;
  if (params.baseUrl === undefined || isCompatible) return {};
  const url = new URL(params.baseUrl);
  return { hostOverride: url.origin, pathPrefix: url.pathname.replace(/\/+$/, "") };
}

function authOf({ params }: ModelConfig): AuthConfig | undefined {
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

/** A provider's name and the parameters that belong to it, as the object that `ai.provider` takes. */
function providerOf({ provider, params, name }: ModelConfig): ProviderConfig {
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
        : { openAICompatible: { baseUrl: params.baseUrl, name: "openai", streamUsage: true } };
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
          resourceName: needed(params.azureResourceName, "azureResourceName"),
          resourceType: params.azureResourceType ?? "openAI",
          apiVersion: params.azureApiVersion,
        },
      };
    default:
      return { openAICompatible: { baseUrl: params.baseUrl ?? PRESETS[provider], name: provider, streamUsage: true } };
  }
}
