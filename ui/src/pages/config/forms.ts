/**
 * Describes the forms that add something to the configuration: their fields, and the entry for `/ui/api/add`.
 */
export type FormKind = "route" | "backend" | "rateLimit" | "apiKey" | "authorization" | "server" | "model";

export type Values = Readonly<Record<string, string>>;

export interface FormField {
  readonly name: string;
  readonly label: string;
  readonly placeholder?: string;
  readonly isOptional?: boolean;
  /** A field with options is a menu, and its first option is the default. */
  readonly options?: readonly FormOption[];
}

export interface FormOption {
  readonly value: string;
  readonly title: string;
}

/** Names that the loaded configuration offers. */
export interface FormContext {
  readonly routes: readonly FormOption[];
  /** Routes, listeners, and sections, which can have policies. */
  readonly owners: readonly FormOption[];
  readonly listeners: readonly string[];
  readonly providers: readonly string[];
}

export interface Form {
  readonly title: string;
  readonly doc: string;
  fields(values: Values, context: FormContext): readonly FormField[];
  /** Receives only filled fields. */
  entry?(values: Values): object;
}

const PROVIDER_FIELDS: Readonly<Record<string, FormField>> = {
  bedrock: { name: "awsRegion", label: "AWS region", placeholder: "us-east-1" },
  vertex: { name: "vertexProject", label: "Google Cloud project", placeholder: "my-project" },
  azure: { name: "azureResourceName", label: "Azure resource", placeholder: "my-resource" },
  openAICompatible: { name: "baseUrl", label: "Base URL", placeholder: "http://localhost:8000/v1" },
};
/** These providers use the credentials of the cloud or need none. */
const WITHOUT_KEY = new Set(["demo", "bedrock", "vertex", "ollama"]);

const named = (placeholder: string): FormField => ({ name: "name", label: "Name", placeholder });

export const FORMS: Readonly<Record<FormKind, Form>> = {
  route: {
    title: "Add a route",
    doc: "Sends requests with a path to a backend.",
    fields: (_values, { listeners }) => [
      named("api"),
      ...(listeners.length > 1
        ? [{ name: "gateway", label: "Gateway", options: listeners.map((name) => ({ value: name, title: name })) }]
        : []),
      {
        name: "match",
        label: "Path",
        options: [
          { value: "pathPrefix", title: "begins with" },
          { value: "exact", title: "is exactly" },
        ],
      },
      { name: "path", label: "Path value", placeholder: "/api" },
      { name: "hostname", label: "Host name", placeholder: "api.example.com", isOptional: true },
      { name: "host", label: "Backend", placeholder: "127.0.0.1:9000" },
    ],
  },
  backend: {
    title: "Add a backend",
    doc: "The route shares its requests between its backends by weight.",
    fields: (_values, { routes }) => [
      { name: "target", label: "Route", options: routes },
      { name: "host", label: "Address", placeholder: "127.0.0.1:9001" },
      { name: "weight", label: "Weight", placeholder: "1", isOptional: true },
    ],
    entry: withNumbers("weight"),
  },
  rateLimit: {
    title: "Add a rate limit",
    doc: "Rejects requests above the limit with 429.",
    fields: ({ of }, { owners }) => [
      { name: "target", label: "Applies to", options: owners },
      { name: "amount", label: "Limit", placeholder: "100" },
      {
        name: "of",
        label: "Of",
        options: [
          { value: "requests", title: "requests" },
          { value: "tokens", title: "LLM tokens" },
        ],
      },
      {
        name: "unit",
        label: "Per",
        options: [
          { value: "Minutes", title: "minute" },
          { value: "Seconds", title: "second" },
          { value: "Hours", title: "hour" },
        ],
      },
      ...(of === "tokens" ? [] : [{ name: "burst", label: "Burst", placeholder: "none", isOptional: true }]),
      {
        name: "key",
        label: "Separate limit for each value of (CEL)",
        placeholder: "apiKey.user_id",
        isOptional: true,
      },
    ],
    entry: withNumbers("amount", "burst"),
  },
  apiKey: {
    title: "Require API keys",
    doc: "Rejects requests without a valid key with 401.",
    fields: ({ source }, { owners }) => [
      { name: "target", label: "Applies to", options: owners },
      {
        name: "source",
        label: "Accept",
        options: [
          { value: "stored", title: "keys created on Keys & spend" },
          { value: "variable", title: "a key in an environment variable" },
        ],
      },
      ...(source === "variable"
        ? [
            { name: "keyVariable", label: "Environment variable", placeholder: "CI_KEY" },
            { name: "user", label: "User (apiKey.user_id)", placeholder: "ci", isOptional: true },
          ]
        : []),
    ],
    entry: ({ source: _source, ...rest }) => rest,
  },
  authorization: {
    title: "Add an authorization rule",
    doc: "Rejects requests that the rule does not allow with 403.",
    fields: (_values, { owners }) => [
      { name: "target", label: "Applies to", options: owners },
      {
        name: "effect",
        label: "Requests",
        options: [
          { value: "require", title: "must match the rule" },
          { value: "allow", title: "need this or another allow rule" },
          { value: "deny", title: "that match the rule are denied" },
        ],
      },
      { name: "rule", label: "Rule (CEL)", placeholder: 'apiKey.role == "admin"' },
    ],
  },
  server: {
    title: "Add a server",
    doc: "MCP clients see its tools through the gateway.",
    fields: ({ way }) => [
      named("files"),
      {
        name: "way",
        label: "Kind",
        options: [
          { value: "cmd", title: "a command on this machine (stdio)" },
          { value: "url", title: "a remote server (URL)" },
        ],
      },
      way === "url"
        ? { name: "url", label: "URL", placeholder: "https://mcp.example.com/mcp" }
        : {
            name: "cmd",
            label: "Command and arguments",
            placeholder: "npx -y @modelcontextprotocol/server-filesystem .",
          },
    ],
    entry: ({ way: _way, cmd, ...rest }) =>
      cmd === undefined ? rest : { ...rest, cmd: words(cmd)[0] ?? "", args: words(cmd).slice(1) },
  },
  model: {
    title: "Add a model",
    doc: "Clients request the model by its name.",
    fields: ({ provider = "" }, { providers }) => [
      { name: "name", label: "Name that clients request", placeholder: "fast" },
      { name: "provider", label: "Provider", options: providers.map((name) => ({ value: name, title: name })) },
      ...[PROVIDER_FIELDS[provider]].filter((field) => field !== undefined),
      { name: "model", label: "Model at the provider", placeholder: "the same name", isOptional: true },
      ...(WITHOUT_KEY.has(provider)
        ? []
        : [
            {
              name: "keyVariable",
              label: "Environment variable with the provider's key",
              placeholder: `${provider.toUpperCase()}_API_KEY`,
              isOptional: true,
            },
          ]),
    ],
  },
};

function withNumbers(...names: readonly string[]): (values: Values) => object {
  return (values) =>
    Object.fromEntries(
      Object.entries(values).map(([name, value]) => [name, names.includes(name) ? Number(value) : value]),
    );
}

/** Splits a command line at spaces and removes quotes, without a shell. */
export function words(text: string): string[] {
  return [...text.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map(
    ([, double, single, plain]) => double ?? single ?? plain ?? "",
  );
}
