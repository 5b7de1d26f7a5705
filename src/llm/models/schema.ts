/**
 * Defines the configuration schema of `ai` and of the top-level section `llm`.
 */
import { z } from "zod";
import { suggestion } from "../../cel/values/nearest-name.ts";
import {
  celSource,
  duration,
  exactlyOneOf,
  filePath,
  markAddress,
  markExactlyOne,
  markLocal,
  secret,
  serverUrl,
} from "../../core/schema.ts";
import { parseAddress } from "../../http/backend-address.ts";
import { pathFault } from "../../http/request-path.ts";
import { apiKeySchema, authSchema } from "./credential.ts";
import { CUSTOM_FORMATS, MODEL_PLACEHOLDER, PRESETS } from "./providers.ts";

const FAILOVER_CAUSES = ["rateLimit", "serverError", "timeout", "authentication", "notFound", "contextLength"] as const;

const failoverOn = z
  .array(
    z.union([z.enum(FAILOVER_CAUSES), z.int().min(400).max(599)], {
      error: `expected a status from 400 to 599, or one of ${FAILOVER_CAUSES.join(", ")}`,
    }),
  )
  .optional()
  .describe(
    "Responses that cause failover to the next provider: `rateLimit` (429), `serverError` (5xx), `timeout` (408), `authentication` (401 and 403, unless the client's own key was used), `notFound` (404), `contextLength` (a prompt that is too long for the model), or a status code. Default: all of these names. Connection failures and timeouts always cause failover.",
  );

export type FailoverCause = (typeof FAILOVER_CAUSES)[number] | number;

export const DEFAULT_FAILOVER_ON: readonly FailoverCause[] = FAILOVER_CAUSES;

const cooldown = z
  .strictObject({
    allowedFailures: z
      .int()
      .min(0)
      .max(1000)
      .default(0)
      .describe("Consecutive failures to allow before a pause. Default: 0."),
    initial: duration().default(1_000).describe("The first pause; each further failure doubles it. Default: 1s."),
    max: duration().default(30_000).describe("The maximum pause. Default: 30s."),
    maxRetryAfter: duration().default(600_000).describe("The maximum `retry-after` to honor. Default: 10m."),
  })
  .prefault({})
  .describe("How long a failed provider is tried last.");

const MAX_PER_MINUTE = 1_000_000_000_000;

const perMinute = z
  .strictObject({
    requests: z.int().min(1).max(MAX_PER_MINUTE).optional().describe("Requests per minute."),
    tokens: z.int().min(1).max(MAX_PER_MINUTE).optional().describe("Tokens per minute, input and output."),
  })
  .optional()
  .describe(
    "Limits the calls to this deployment per minute. When the quota is exhausted, the next deployment is tried; if there is none, the client gets 429.",
  );

const model = z.string().min(1).max(256).optional().describe("The model to use. Default: the client's.");

const region = z.string().regex(/^[a-z0-9-]+$/, "expected a region such as us-east-1");

const UNSAFE_PATH = "no server would accept this path: it has a dot segment, a backslash or a bad percent encoding";

/** The query of `pathOverride` may contain any characters, so only the path is checked. */
function isSafePath(path: string): boolean {
  return pathFault(path.split("?", 1)[0] ?? "") === undefined;
}

function withoutPlaceholder(path: string): string {
  return path.replaceAll(MODEL_PLACEHOLDER, "m");
}

const PROVIDERS = {
  openAI: z.strictObject({ model }).optional().describe("OpenAI."),
  anthropic: z.strictObject({ model }).optional().describe("Anthropic."),
  gemini: z.strictObject({ model }).optional().describe("Google Gemini."),
  vertex: z
    .strictObject({
      model,
      projectId: z
        .string()
        .regex(/^[a-z0-9.:-]+$/, "expected a Google Cloud project id")
        .describe("The Google Cloud project."),
      region: region.default("global").describe("The location. Default: global."),
    })
    .optional()
    .describe("Google Vertex AI: Gemini and Claude models."),
  bedrock: z
    .strictObject({ model, region: region.describe("The AWS region.") })
    .optional()
    .describe("Amazon Bedrock."),
  azure: z
    .strictObject({
      model,
      resourceName: z
        .string()
        .regex(/^[A-Za-z0-9-]+$/, "expected the name of the resource, not its URL")
        .describe("The name of the Azure resource."),
      resourceType: z
        .enum(["openAI", "foundry"])
        .default("openAI")
        .describe("Azure OpenAI or Azure AI Foundry. Default: openAI."),
      apiVersion: z
        .string()
        .min(1)
        .optional()
        .describe("A dated version of the older API, which has deployment names in its paths. Default: v1."),
    })
    .optional()
    .describe("Azure OpenAI."),
  openAICompatible: z
    .strictObject({
      model,
      baseUrl: serverUrl().describe("The base URL of the API, for example http://localhost:8000/v1."),
      name: z
        .string()
        .min(1)
        .optional()
        .describe("The provider's name in logs, metrics, and price catalogs. Default: the host."),
      streamUsage: z
        .boolean()
        .default(true)
        .describe("Whether the server supports `stream_options.include_usage`. Default: true."),
      responses: z
        .boolean()
        .default(true)
        .describe(
          "Whether the server supports the Responses API. If not, these requests are translated to chat completions. Default: true.",
        ),
    })
    .optional()
    .describe("Any server with an OpenAI-compatible API."),
  custom: z
    .strictObject({
      model,
      baseUrl: serverUrl().describe("The base URL of the server, for example https://llm.internal/api."),
      name: z
        .string()
        .min(1)
        .optional()
        .describe("The provider's name in logs, metrics, and price catalogs. Default: the host."),
      keyHeader: z
        .enum(["authorization", "x-api-key", "api-key", "x-goog-api-key"])
        .default("authorization")
        .describe("The header for the key. `authorization` sends it as a bearer token. Default: authorization."),
      streamUsage: z
        .boolean()
        .default(true)
        .describe("Whether the server supports `stream_options.include_usage` of chat completions. Default: true."),
      formats: z
        .array(
          z.strictObject({
            type: z
              .enum(Object.keys(CUSTOM_FORMATS) as (keyof typeof CUSTOM_FORMATS)[])
              .describe(
                "The API: `completions` (OpenAI chat completions), `messages` (Anthropic), `responses` or `embeddings` (OpenAI).",
              ),
            path: z
              .string()
              .regex(/^\/[^?#]*[^/?#]$/, "expected a path without a query and without a slash at its end")
              .refine((path) => isSafePath(withoutPlaceholder(path)), UNSAFE_PATH)
              .refine(
                (path) => !/[{}]/.test(withoutPlaceholder(path)),
                "`{model}` is the only placeholder that a path can have",
              )
              .optional()
              .describe(
                "The path below `baseUrl`. `{model}` is replaced by the model. Default: the path of the API, for example `/chat/completions`.",
              ),
          }),
        )
        .min(1)
        .refine(
          (formats) => new Set(formats.map(({ type }) => type)).size === formats.length,
          "each `type` can occur only once",
        )
        .describe(
          "The APIs of the server. Other conversations are translated to the first of `completions` and `messages` in this list.",
        ),
    })
    .optional()
    .describe("A server with the APIs and paths that you define."),
  demo: z
    .strictObject({
      model,
      delay: duration().optional().describe("The pause between two chunks of a stream. Default: none."),
    })
    .optional()
    .describe("A demo provider inside the gateway. It needs no network and no key."),
};

const providerSchema = exactlyOneOf(z.strictObject(PROVIDERS), Object.keys(PROVIDERS));

const address = markAddress(
  markLocal(
    z
      .string()
      .refine((text) => parseAddress(text).ok, "expected host:port, or an http:// or https:// URL without a path"),
    { what: "a unix socket", isLocal: (text) => /^unix:/i.test(String(text)) },
  ),
).optional();

const overrides = {
  hostOverride: address.describe("Sends the call to this `host:port` instead; plain HTTP unless `backendTLS` is set."),
  pathOverride: z
    .string()
    .startsWith("/")
    .refine(isSafePath, UNSAFE_PATH)
    .optional()
    .describe("Sends all calls to this path."),
  pathPrefix: z
    .string()
    .regex(/^\/.*[^/]$|^$/, "expected a path without a slash at its end")
    .refine(isSafePath, UNSAFE_PATH)
    .optional()
    .describe("Replaces the beginning of the provider's path, for example `/v1`."),
  perMinute,
  timeouts: z
    .strictObject({
      firstByte: duration()
        .optional()
        .describe(
          "How long the provider may take to send the first byte of the response body. After that, the next provider is tried.",
        ),
      idle: duration()
        .optional()
        .describe("How long a response may pause between two chunks. After that, the response ends with an error."),
    })
    .optional()
    .describe("Timeouts of this provider. Default: the route's `timeout`, and no limit between chunks."),
};

const namedProvider = {
  provider: providerSchema.describe("The provider. Set exactly one."),
  auth: authSchema
    .optional()
    .describe("The credential for the provider. Default: the client's credential is forwarded."),
  ...overrides,
};

const targetSchema = z.strictObject({
  name: z.string().min(1).optional().describe("The name in logs and dumps."),
  ...namedProvider,
  weight: z.int().min(1).max(10_000).default(1).describe("The share of calls within its group. Default: 1."),
});

const PROVIDER_NAMES = [
  ...(["openAI", "openai", "anthropic", "gemini", "vertex", "bedrock", "azure", "demo"] as const),
  ...(Object.keys(PRESETS) as (keyof typeof PRESETS)[]),
];

export const providerName = z.enum(PROVIDER_NAMES, { error: ({ input }) => settingsAdvice(input) });

/** A model can also refer to a shared provider. */
const modelProviderName = z.enum(PROVIDER_NAMES, {
  error: ({ input }) =>
    settingsAdvice(input) ??
    (typeof input === "string" ? "for an entry in `providers`, write `{ reference: NAME }`" : undefined),
});

function settingsAdvice(input: unknown): string | undefined {
  if (typeof input !== "string" || !Object.hasOwn(PROVIDERS, input)) return undefined;
  return `\`${input}\` needs settings, so write \`{ ${input}: { … } }\``;
}

const modelPattern = z
  .string()
  .min(1)
  .max(256)
  .refine((name) => name.split("*").length <= 2, "at most one * is allowed");

const modelParams = z
  .strictObject({
    model: z
      .string()
      .min(1)
      .max(256)
      .optional()
      .describe(
        "The provider's name for the model. `*` is replaced by the text that matched the `*` in `name`. Default: the requested name.",
      ),
    apiKey: apiKeySchema.describe(
      "The provider's key, `{file}`, `{passthrough: {}}`, `{aws}`, `{google}` or `{azure}` as under `ai.auth`.",
    ),
    baseUrl: serverUrl().optional().describe("The base URL of the provider's API."),
    ...overrides,
    awsRegion: region.optional().describe("For bedrock."),
    awsAccessKeyId: z.string().min(1).optional().describe("For bedrock."),
    awsSecretAccessKey: secret().optional().describe("For bedrock."),
    awsSessionToken: secret().optional().describe("For bedrock: the session token of temporary credentials."),
    vertexRegion: region.optional().describe("For vertex."),
    vertexProject: z.string().min(1).optional().describe("For vertex."),
    azureResourceName: z.string().min(1).optional().describe("For azure."),
    azureResourceType: z.enum(["openAI", "foundry"]).optional().describe("For azure."),
    azureApiVersion: z.string().min(1).optional().describe("For azure."),
  })
  .default({})
  .describe("Connection settings of the provider.");

const sharedProviderSchema = z.strictObject({
  name: z.string().min(1).max(256).describe("The name that models refer to."),
  provider: z
    .union([providerName, providerSchema])
    .describe("A provider's name, or the object as under `ai.provider`."),
  params: modelParams,
});

const REFERENCE = {
  reference: z
    .string()
    .min(1)
    .optional()
    .describe("The name of an entry in `providers`. The model's own `params` take precedence over those of the entry."),
};
const modelProvider = exactlyOneOf(z.strictObject({ ...PROVIDERS, ...REFERENCE }), [
  ...Object.keys(PROVIDERS),
  ...Object.keys(REFERENCE),
]);

const modelSchema = z.strictObject({
  name: modelPattern.describe(
    "The model name that clients request: a name, `prefix*`, `*suffix`, or `*`. The first match is used. Entries with the same name share the calls.",
  ),
  aliases: z.array(modelPattern).optional().describe("Additional names for the model."),
  weight: z
    .int()
    .min(1)
    .max(10_000)
    .default(1)
    .describe("The share of calls among entries with the same name. Default: 1."),
  visibility: z
    .enum(["public", "internal"])
    .default("public")
    .describe("`internal`: clients cannot request the model; only virtual models use it. Default: public."),
  provider: z
    .union([modelProviderName, modelProvider])
    .describe("A provider's name, the object as under `ai.provider`, or `{reference}` to an entry in `providers`."),
  params: modelParams,
});

const targetModel = z.string().min(1).max(256).describe("The name of an entry in `models`.");

const virtualModelSchema = z.strictObject({
  name: z.string().min(1).max(256).describe("The model name that clients request."),
  routing: exactlyOneOf(
    z.strictObject({
      weighted: z
        .strictObject({
          targets: z
            .array(
              z.strictObject({
                model: targetModel,
                weight: z.int().min(0).max(10_000).default(1).describe("The share of calls. Default: 1."),
              }),
            )
            .min(1),
        })
        .optional()
        .describe("Distributes calls over models by weight."),
      failover: z
        .strictObject({
          targets: z
            .array(
              z.strictObject({
                model: targetModel,
                priority: z
                  .int()
                  .min(0)
                  .default(0)
                  .describe(
                    "Lower numbers are tried first. Models with the same priority share the calls. Default: 0.",
                  ),
                weight: z
                  .int()
                  .min(1)
                  .max(10_000)
                  .default(1)
                  .describe("The share of calls within its priority. Default: 1."),
              }),
            )
            .min(1),
        })
        .optional()
        .describe("Tries models in order of priority."),
      conditional: z
        .strictObject({
          order: z
            .enum(["listed", "cheapest"])
            .default("listed")
            .describe(
              "The order of the matching models: as listed, or by price for this call, lowest first (models without a price last). The later ones are used for failover. Default: listed.",
            ),
          targets: z
            .array(
              z.strictObject({
                model: targetModel,
                when: celSource()
                  .optional()
                  .describe(
                    'CEL: the calls that can use the model, for example `request.headers["x-tier"] == "gold"` or `jwt.team == "research"`. Default: all.',
                  ),
                maxPromptTokens: z
                  .int()
                  .min(1)
                  .optional()
                  .describe("The maximum prompt size for the model, in estimated tokens. Default: no limit."),
              }),
            )
            .min(1)
            .describe(
              "A call can use the models whose conditions it meets. If it meets none, it is rejected with 400.",
            ),
        })
        .optional()
        .describe("Selects models by request, caller, and price."),
    }),
    ["weighted", "failover", "conditional"],
  ).describe("How the gateway selects a model."),
});

const MAX_CACHE_MS = 30 * 86_400_000;

const cache = z
  .strictObject({
    ttl: duration()
      .refine((ms) => ms >= 1_000 && ms <= MAX_CACHE_MS, "expected 1s to 30d")
      .describe("How long a response stays cached, at most 30d."),
    scope: z
      .enum(["user", "shared"])
      .default("user")
      .describe("Whether each user has a separate cache, or all users share one. Default: user."),
  })
  .optional()
  .describe("Caches responses in the store and returns them for identical requests.");

const DEFAULT_MAX_BODY_BYTES = 32 * 1024 * 1024;
const DEFAULT_MAX_TREE_BYTES = 2 * 1024 * 1024;

const LAYOUTS = ["provider", "groups", "models"];

function createAiSchema<Model extends z.ZodType, Virtual extends z.ZodType>(modelOf: Model, virtualModelOf: Virtual) {
  const schema = exactlyOneOf(
    z.strictObject({
      name: z.string().min(1).optional().describe("The name in logs and dumps."),
      provider: providerSchema.optional().describe("The provider. Set exactly one."),
      auth: namedProvider.auth,
      ...overrides,
      groups: z
        .array(
          z.strictObject({
            providers: z
              .array(targetSchema)
              .min(1)
              .describe("The providers of the group, which share its calls by weight."),
          }),
        )
        .min(1)
        .optional()
        .describe(
          "Groups of providers in order of priority. If all providers of a group fail, the next group is tried.",
        ),
      models: z.array(modelOf).min(1).optional().describe("Models by name, each with its provider."),
      providers: z
        .array(sharedProviderSchema)
        .optional()
        .describe("Providers with their settings, which several `models` can share with `provider: {reference}`."),
      virtualModels: z.array(virtualModelOf).optional().describe("Model names that route to one of several `models`."),
      failoverOn,
      cooldown,
      unsupported: z
        .enum(["drop", "pass", "refuse"])
        .default("drop")
        .describe(
          "What happens to parameters that the provider's API does not support: `drop` omits them and lists them in `x-gateway-dropped`, `pass` sends them unchanged, `refuse` rejects the request. Default: drop.",
        ),
      modelCatalog: filePath()
        .optional()
        .describe("A JSON file with prices per model, used to compute the cost of each call."),
      shippedPrices: z
        .boolean()
        .default(true)
        .describe("Whether models that are not in `modelCatalog` use the built-in price list. Default: true."),
      cache,
      maxBodyBytes: z
        .int()
        .min(1024)
        .max(256 * 1024 * 1024)
        .default(DEFAULT_MAX_BODY_BYTES)
        .describe("The maximum size of a request body. Default: 32 MiB."),
      maxTreeBytes: z
        .int()
        .min(1024)
        .max(DEFAULT_MAX_BODY_BYTES)
        .default(DEFAULT_MAX_TREE_BYTES)
        .describe(
          "The maximum size of a request that is translated or edited, not counting encoded images and texts of at least 1 KiB. Larger requests get 413. Default: 2 MiB.",
        ),
    }),
    LAYOUTS,
  );
  const checked = schema.superRefine((value, context) => {
    for (const { path, message } of referenceProblems(value as SharedProviders))
      context.addIssue({ code: "custom", path, message });
  });
  return markExactlyOne(checked, LAYOUTS);
}

interface SharedProviders {
  readonly providers?: readonly { readonly name: string }[];
  readonly models?: readonly { readonly provider: unknown }[];
}

function referenceProblems({
  providers = [],
  models,
}: SharedProviders): { path: (string | number)[]; message: string }[] {
  const names = providers.map(({ name }) => name);
  const twice = names.flatMap((name, i) =>
    names.indexOf(name) === i ? [] : [{ path: ["providers", i, "name"], message: `the name "${name}" is used twice` }],
  );
  if (models === undefined && providers.length > 0)
    return [...twice, { path: ["providers"], message: "only entries of `models` refer to `providers`" }];
  const unknown = (models ?? []).flatMap(({ provider }, i) => {
    const reference = (provider as { readonly reference?: string }).reference;
    if (reference === undefined || names.includes(reference)) return [];
    const message = `no entry in \`providers\` is named "${reference}"${suggestion(reference, names)}`;
    return [{ path: ["models", i, "provider", "reference"], message }];
  });
  return [...twice, ...unknown];
}

export const aiSchema = createAiSchema(modelSchema, virtualModelSchema);

export function aiSchemaWith(policies: z.ZodType<Readonly<Record<string, unknown>>>) {
  const field = policies
    .optional()
    .describe("Policies for calls to this model. They run after those of the route and the backend.");
  return createAiSchema(modelSchema.extend({ policies: field }), virtualModelSchema.extend({ policies: field }));
}

interface Policed {
  readonly policies?: Readonly<Record<string, unknown>> | undefined;
}
/** A model whose provider is not a reference. */
export type ModelConfig = Omit<z.output<typeof modelSchema>, "provider"> &
  Pick<z.output<typeof sharedProviderSchema>, "provider"> &
  Policed;
export type WrittenModelConfig = z.output<typeof modelSchema> & Policed;
export type SharedProviderConfig = z.output<typeof sharedProviderSchema>;
export type VirtualModelConfig = z.output<typeof virtualModelSchema> & Policed;
export type AiConfig = Omit<z.output<typeof aiSchema>, "models" | "virtualModels"> & {
  readonly models?: readonly WrittenModelConfig[] | undefined;
  readonly virtualModels?: readonly VirtualModelConfig[] | undefined;
};
export type ProviderConfig = z.output<typeof providerSchema>;
