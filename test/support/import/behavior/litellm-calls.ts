/**
 * The calls that compare LiteLLM with the imported configuration, and what is compared of them.
 */
import { peerInput } from "../../../../src/base/peer-inputs.ts";
import { readYaml } from "../../../../src/base/read-yaml.ts";
import { asList, asObject, type Values } from "../../../../src/config/import/conversion.ts";
import { litellmDocument } from "../../../../src/config/import/litellm-document.ts";
import { eventData } from "./event-data.ts";
import { type Failure, modelOf, type Providers, type Received } from "./providers.ts";

const FILE = peerInput("file/imported-configuration");

export interface Call {
  readonly name: string;
  readonly path: string;
  readonly body: Readonly<Record<string, unknown>>;
  /** The client's key, or an empty string. */
  readonly key: string;
  /** Models that reject the call. */
  readonly failing?: Readonly<Record<string, Failure>>;
  /** Calls with several deployments are repeated, to see all of them. */
  readonly times: number;
}

/** What a provider received, and what the client received. */
export interface Observed {
  readonly sent: readonly Sent[];
  readonly status: number;
  readonly answer: unknown;
}

export interface Sent {
  readonly to: string;
  readonly model: string;
  readonly credentials: Readonly<Record<string, string>>;
  readonly headers: Readonly<Record<string, string>>;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly texts: readonly string[];
}

/** Every variable has a value that names it. LiteLLM's master key must begin with `sk-`. */
export function variableValue(variable: string): string {
  if (variable === "AWS_REGION") return "us-east-1";
  if (variable === "DATABASE_URL") return "";
  // No server answers there.
  if (variable === "REDIS_HOST") return "127.0.0.1";
  if (variable === "REDIS_PORT") return "1";
  if (variable === "OWN_BASE") return "https://own.example/v1";
  return `sk-${variable.toLowerCase().replaceAll("_", "-")}`;
}

export function variablesIn(text: string): Record<string, string> {
  const names = [...text.matchAll(/os\.environ\/(\w+)|\$\{(\w+)\}/g)].map(([, there, here]) => there ?? here ?? "");
  return Object.fromEntries([...names, "AWS_REGION"].map((name) => [name, variableValue(name)]));
}

/** Also the keys that LiteLLM reads if a file names none, but no variable that the file sets. */
export function litellmEnvironment(text: string): Record<string, string> {
  const own = asObject(asObject(readYaml(FILE, text)).environment_variables);
  const keys = ["OPENAI", "ANTHROPIC", "GROQ", "GEMINI"].map((name) => `${name}_API_KEY`);
  const all = { ...variablesIn(text), ...Object.fromEntries(keys.map((name) => [name, variableValue(name)])) };
  return Object.fromEntries(Object.entries(all).filter(([name, value]) => !(name in own) && value !== ""));
}

const SETTINGS = { temperature: 0.3, max_tokens: 50, stop: ["END"] };
const MESSAGES = [
  { role: "system", content: "Answer briefly." },
  { role: "user", content: "Where is Rome?" },
];

/** `failing` has the models of a group, which are known after its first call. */
export function callsFor(text: string): Call[] {
  const document = asObject(readYaml(FILE, text));
  const { values } = litellmDocument(document);
  const masterKey = asObject(values.general_settings).master_key;
  const given = asObject(document.general_settings).master_key;
  const key =
    masterKey === undefined ? "sk-client" : String(given).replace(/^os\.environ\/(\w+)$/, (_, n) => variableValue(n));
  const entries = asList(values.model_list).map(asObject);
  const router = asObject(values.router_settings);
  const settings = [router, asObject(values.litellm_settings)];
  const aliases = Object.keys(asObject(router.model_group_alias));
  const names = [...new Set(entries.map(({ model_name }) => String(model_name))), ...aliases];
  const calls: Call[] = [];
  const add = (name: string, model: string, more: Partial<Call> = {}): void => {
    const body = { model, messages: MESSAGES };
    calls.push({ name, path: "/v1/chat/completions", body, key, times: 1, ...more });
  };
  for (const name of names) {
    const own = entries.filter(({ model_name }) => model_name === name);
    const model = name.replace("*", "some-model");
    const times = own.length > 1 ? 40 : 1;
    if (asObject(own[0]?.model_info).mode === "embedding") {
      const body = { model, input: "Where is Rome?" };
      add(`embeddings ${name}`, model, { path: "/v1/embeddings", body });
      continue;
    }
    add(`chat ${name}`, model, { times });
    if (times > 1) continue;
    add(`chat ${name} with settings`, model, { body: { model, messages: MESSAGES, ...SETTINGS } });
    add(`stream ${name}`, model, {
      body: { model, messages: MESSAGES, stream: true, stream_options: { include_usage: true } },
    });
  }
  add("an unknown model", "no-such-model");
  if (masterKey !== undefined) {
    add("a wrong key", names[0] ?? "", { key: "sk-wrong" });
    add("no key", names[0] ?? "", { key: "" });
  }
  const groups = settings.flatMap((section) =>
    ["fallbacks", "context_window_fallbacks", "content_policy_fallbacks"].flatMap((kind) =>
      asList(section[kind]).flatMap((entry) => Object.keys(asObject(entry))),
    ),
  );
  for (const group of [...new Set(groups)].filter((name) => names.includes(name)))
    for (const failure of ["context", "content", "server", "rate"] as const) {
      const models = entries.filter(({ model_name }) => model_name === group).map((entry) => upstreamModel(entry));
      const failing = Object.fromEntries(models.map((model) => [model, failure]));
      add(`chat ${group} while its provider answers with a ${failure} error`, group, { failing });
    }
  return calls;
}

function upstreamModel(entry: Values): string {
  return String(asObject(entry.litellm_params).model).replace(/^[a-z_]+\//, "");
}

export async function observe(call: Call, url: string, providers: Providers): Promise<Observed> {
  providers.received.length = 0;
  providers.failing = new Map(Object.entries(call.failing ?? {}));
  let status = 0;
  let answer: unknown;
  const answers = new Set<string>();
  for (let i = 0; i < call.times; i++) {
    const response = await fetch(url + call.path, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...(call.key === "" ? {} : { authorization: `Bearer ${call.key}` }),
      },
      body: JSON.stringify(call.body),
    });
    const text = await response.text();
    status = response.status;
    answer = status === 200 ? answerOf(text, response.headers.get("content-type") ?? "") : undefined;
    answers.add(JSON.stringify(answer ?? null));
  }
  const sent = providers.received.map(sentOf);
  const isSame = (a: Sent, b: Sent | undefined): boolean => JSON.stringify(a) === JSON.stringify(b);
  // LiteLLM repeats a failed call, the gateway tries the next model.
  const once = sent.filter((one, i) => !isSame(one, sent[i - 1]));
  if (call.times === 1) return { sent: once, status, answer };
  const all = [...new Set(sent.map((one) => JSON.stringify(one)))].sort().map((one) => JSON.parse(one) as Sent);
  return { sent: all, status, answer: [...answers].sort().map((one) => JSON.parse(one) as unknown) };
}

function answerOf(text: string, type: string): unknown {
  // LiteLLM sends some streams as JSON.
  const chunks =
    text.startsWith("data: ") || type.includes("event-stream") ? eventData(text) : [asObject(JSON.parse(text))];
  const first = asObject(asList(chunks[0]?.data)[0]);
  if (first.embedding !== undefined) return { embedding: first.embedding };
  const choices = chunks.map((chunk) => asObject(asList(chunk.choices)[0]));
  const part = (choice: Values): Values => asObject(choice.message ?? choice.delta);
  const usage = asObject(chunks.map((chunk) => chunk.usage).findLast((one) => one !== undefined && one !== null));
  return {
    text: choices.map((choice) => String(part(choice).content ?? "")).join(""),
    end: choices.map((choice) => choice.finish_reason).findLast((reason) => typeof reason === "string"),
    tokens: [usage.prompt_tokens, usage.completion_tokens],
  };
}

const CREDENTIALS = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];
const HEADERS = ["openai-organization", "x-team", "anthropic-beta"];

function sentOf({ origin, path, headers, body }: Received): Sent {
  const query = new URLSearchParams(path.split("?")[1]);
  const key = query.get("key");
  query.delete("key");
  const credentials = CREDENTIALS.flatMap((name) =>
    headers[name] === undefined ? [] : [[name, signer(String(headers[name]))]],
  );
  const generation = {
    ...asObject(body.generationConfig),
    ...asObject(body.inferenceConfig),
    ...asObject(body.options),
    ...body,
  };
  const settings = {
    temperature: generation.temperature,
    maxTokens:
      generation.max_tokens ??
      generation.max_completion_tokens ??
      generation.maxOutputTokens ??
      generation.max_output_tokens ??
      generation.maxTokens ??
      generation.num_predict,
    stop: generation.stop ?? generation.stop_sequences ?? generation.stopSequences,
    seed: generation.seed,
    stream: body.stream === true || /stream/i.test(path) || undefined,
  };
  const sentHeaders = HEADERS.flatMap((name) => (headers[name] === undefined ? [] : [[name, String(headers[name])]]));
  return {
    to: `${origin}${path.split("?")[0]}${query.size > 0 ? `?${query}` : ""}`,
    model: modelOf(path, body),
    credentials: Object.fromEntries([...credentials, ...(key === null ? [] : [["key in the query", key]])]),
    headers: Object.fromEntries(sentHeaders),
    settings: JSON.parse(JSON.stringify(settings)),
    texts: [
      body.system,
      body.systemInstruction,
      body.system_instruction,
      body.messages,
      body.contents,
      body.prompt,
      body.input,
    ]
      .flatMap(textsIn)
      .sort(),
  };
}

/** A signature of AWS is compared by its key, region, and service. */
function signer(credential: string): string {
  const [, id, scope] = /Credential=([^/]+)\/\d+\/([^,]+)/.exec(credential) ?? [];
  return id === undefined ? credential : `AWS ${id} ${scope}`;
}

const TEXT_FIELDS = new Set(["content", "text", "parts"]);

function textsIn(value: unknown): string[] {
  if (typeof value === "string") return [value];
  if (Array.isArray(value)) return value.flatMap(textsIn);
  return Object.entries(asObject(value)).flatMap(([name, part]) => (TEXT_FIELDS.has(name) ? textsIn(part) : []));
}
