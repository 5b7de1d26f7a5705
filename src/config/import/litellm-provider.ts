/**
 * Finds the provider and the address that LiteLLM uses for a model. A credential must not go to another host, so a model
 * is left out if its provider cannot be known. `test/support/import/litellm-requests.json` has what LiteLLM really sends.
 */

interface KnownProvider {
  readonly name: string;
  /** The environment variable that LiteLLM reads if there is no `api_key`. */
  readonly keyVariable?: string;
  /** LiteLLM's address without `api_base`, if the gateway's is another one. */
  readonly base?: string;
  /** Converts `api_base` to `baseUrl`, or returns why it cannot be used. Default: the address is used as it is. */
  readonly address?: (base: string) => string | Fault;
}

export class Fault {
  readonly reason: string;

  constructor(reason: string) {
    this.reason = reason;
  }
}

/** Which API answers at an address of LiteLLM's, and the address to write here. */
export interface LitellmProvider {
  readonly prefix: string;
  /** Undefined for any other server with OpenAI's API at `baseUrl`. */
  readonly known: string | undefined;
  readonly model: string;
  readonly baseUrl: string | undefined;
  readonly keyVariable: string | undefined;
}

const VERSION = /\/v1$/;

const versioned = (base: string): string => (VERSION.test(base) ? base : `${base}/v1`);
const refused = (why: string) => (): Fault => new Fault(`its api_base ${why}`);

const PROVIDERS: Readonly<Record<string, KnownProvider>> = {
  openai: { name: "openAI", keyVariable: "OPENAI_API_KEY" },
  anthropic: {
    name: "anthropic",
    keyVariable: "ANTHROPIC_API_KEY",
    address: (base) => `${base.replace(/\/v1\/messages$/, "")}/v1`,
  },
  gemini: { name: "gemini", keyVariable: "GEMINI_API_KEY" },
  vertex_ai: { name: "vertex", address: refused("cannot be used for Vertex AI") },
  vertex_ai_beta: { name: "vertex", address: refused("cannot be used for Vertex AI") },
  bedrock: { name: "bedrock" },
  azure: {
    name: "azure",
    keyVariable: "AZURE_API_KEY",
    address: (base) => `${base}/openai`,
  },
  baseten: { name: "baseten", keyVariable: "BASETEN_API_KEY" },
  cerebras: { name: "cerebras", keyVariable: "CEREBRAS_API_KEY" },
  cohere: { name: "cohere", keyVariable: "COHERE_API_KEY", address: refused("is for Cohere's own API") },
  cohere_chat: { name: "cohere", keyVariable: "COHERE_API_KEY", address: refused("is for Cohere's own API") },
  deepinfra: { name: "deepinfra", keyVariable: "DEEPINFRA_API_KEY" },
  deepseek: { name: "deepseek", keyVariable: "DEEPSEEK_API_KEY", base: "https://api.deepseek.com/beta" },
  fireworks_ai: { name: "fireworks", keyVariable: "FIREWORKS_AI_API_KEY" },
  groq: { name: "groq", keyVariable: "GROQ_API_KEY" },
  huggingface: { name: "huggingface", keyVariable: "HF_TOKEN", address: versioned },
  mistral: { name: "mistral", keyVariable: "MISTRAL_API_KEY", address: versioned },
  // LiteLLM calls Ollama's own API, and the gateway calls the compatible one of the same server.
  ollama: { name: "ollama", address: versioned },
  ollama_chat: { name: "ollama", address: versioned },
  openrouter: { name: "openrouter", keyVariable: "OPENROUTER_API_KEY" },
  together_ai: { name: "togetherai", keyVariable: "TOGETHERAI_API_KEY", base: "https://api.together.ai/v1" },
  xai: { name: "xai", keyVariable: "XAI_API_KEY" },
};

/** The others have OpenAI's API, whose whole path may stand in `api_base`. */
const OWN_APIS = new Set(["anthropic", "gemini", "vertex_ai", "vertex_ai_beta", "bedrock", "azure"]);

/** Prefixes of other servers with OpenAI's API. LiteLLM sends the key to `api_base`. */
const COMPATIBLE = new Set([
  ...["ai21", "aiml", "azure_ai", "codestral", "custom_openai", "dashscope", "databricks", "docker_model_runner"],
  ...["featherless_ai", "friendliai", "galadriel", "github", "hosted_vllm", "hyperbolic", "lambda_ai", "litellm_proxy"],
  ...["llamafile", "lm_studio", "meta_llama", "moonshot", "nebius", "novita", "nscale", "nvidia_nim", "perplexity"],
  ...["sambanova", "v0", "volcengine", "xinference", "zai"],
]);

/** The names that need no prefix. LiteLLM knows lists of them; these are the families. */
const FAMILIES: readonly (readonly [prefix: string, names: RegExp])[] = [
  [
    "openai",
    /^(?:ft:)?(?:gpt-(?!oss)[\w.-]+|chatgpt-[\w.-]+|o\d(?:-[\w-]+)?|babbage-002|davinci-002)(?::.*)?$|^(?:text-embedding-(?:3|ada)|dall-e-|whisper-1|tts-1|omni-moderation-|sora-)/,
  ],
  ["anthropic", /^claude-[\w.-]+$/],
  ["cohere", /^(?:command-|c4ai-|embed-(?:english|multilingual|v\d)|rerank-)/],
  [
    "bedrock",
    /^(?:(?:us|eu|apac|au|ca|jp|global|us-gov)\.)?(?:ai21|amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral|moonshot|moonshotai|nvidia|openai|qwen|stability|twelvelabs|writer|zai)\.[\w.-]+(?::\d+)?$/,
  ],
];

/** Returns a fault if LiteLLM would reject the model, or if its API is another one. */
export function litellmProvider(
  written: string,
  customProvider: string | undefined,
  apiBase: string | undefined,
): LitellmProvider | Fault {
  const { prefix, model } = splitName(written, customProvider);
  if (prefix === undefined)
    return new Fault(`its provider is unknown: write the model as \`<provider>/${written}\` before the import`);
  const known = Object.hasOwn(PROVIDERS, prefix) ? PROVIDERS[prefix] : undefined;
  if (known === undefined && !COMPATIBLE.has(prefix)) return new Fault(`the provider ${prefix} is unknown here`);
  if (known === undefined && apiBase === undefined)
    return new Fault(`the provider ${prefix} is unknown here, and has no api_base`);
  if (apiBase !== undefined && !isAddress(apiBase))
    return new Fault(`its api_base ${apiBase} is not an http or https URL`);
  const address = apiBase?.replace(/\/+$/, "");
  const base = OWN_APIS.has(prefix) ? address : address?.replace(/\/chat\/completions$/, "");
  const baseUrl = base === undefined ? known?.base : (known?.address?.(base) ?? base);
  if (baseUrl instanceof Fault) return baseUrl;
  const isCompatible = known === undefined || (known.name === "openAI" && base !== undefined);
  return {
    prefix,
    known: isCompatible ? undefined : known.name,
    model: prefix === "fireworks_ai" && !/[/#]/.test(model) ? `accounts/fireworks/models/${model}` : model,
    baseUrl,
    keyVariable: known?.keyVariable,
  };
}

/** The value of a variable is checked when the gateway starts. */
function isAddress(base: string): boolean {
  return base.startsWith("${") || (/^https?:\/\//i.test(base) && URL.canParse(base));
}

function splitName(written: string, customProvider: string | undefined): { prefix?: string; model: string } {
  if (customProvider !== undefined)
    return {
      prefix: customProvider,
      model: written.startsWith(`${customProvider}/`) ? written.slice(customProvider.length + 1) : written,
    };
  const slash = written.indexOf("/");
  if (slash >= 0) return { prefix: written.slice(0, slash), model: written.slice(slash + 1) };
  const family = FAMILIES.find(([, names]) => names.test(written));
  return family === undefined ? { model: written } : { prefix: family[0], model: written };
}
