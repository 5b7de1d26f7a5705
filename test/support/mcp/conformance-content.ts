/**
 * The content of the conformance fixture: blocks, resources, and the schemas that the official suite requires by
 * name.
 */
import { ProtocolError } from "@modelcontextprotocol/server";

export type Result = Record<string, unknown>;

/** One red pixel, and a WAV file without a sample. */
export const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
export const WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

export const RESOURCES: readonly {
  uri: string;
  name: string;
  description: string;
  mimeType: string;
  contents: Result;
}[] = [
  {
    uri: "test://static-text",
    name: "static-text",
    description: "Text.",
    mimeType: "text/plain",
    contents: { text: "This is the content of the static text resource." },
  },
  {
    uri: "test://static-binary",
    name: "static-binary",
    description: "An image.",
    mimeType: "image/png",
    contents: { blob: PNG },
  },
  {
    uri: "test://watched-resource",
    name: "watched-resource",
    description: "A resource to watch.",
    mimeType: "text/plain",
    contents: { text: "Watched resource content" },
  },
];

export function readResource(uri: string): Result {
  const known = RESOURCES.find((one) => one.uri === uri);
  if (known) return { contents: [{ uri, mimeType: known.mimeType, ...known.contents }] };
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  if (id === undefined) throw new ProtocolError(-32602, "Resource not found", { uri });
  return {
    contents: [
      {
        uri,
        mimeType: "application/json",
        text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }),
      },
    ],
  };
}

export function content(...blocks: Result[]): Result {
  return { content: blocks };
}

export function messages(...blocks: Result[]): Result {
  return { messages: blocks.map((block) => ({ role: "user", content: block })) };
}

export function text(value: string): Result {
  return { type: "text", text: value };
}

export function image(): Result {
  return { type: "image", data: PNG, mimeType: "image/png" };
}

export function resource(uri: string, mimeType: string, value: string): Result {
  return { type: "resource", resource: { uri, mimeType, text: value } };
}

export const DEFAULTS = {
  name: { type: "string", description: "Name", default: "John Doe" },
  age: { type: "integer", description: "Age", default: 30 },
  score: { type: "number", description: "Score", default: 95.5 },
  status: { type: "string", description: "Status", enum: ["active", "inactive", "pending"], default: "active" },
  verified: { type: "boolean", description: "Verified", default: true },
};

export const ENUMS = {
  untitledSingle: { type: "string", enum: ["option1", "option2", "option3"] },
  titledSingle: {
    type: "string",
    oneOf: ["First", "Second", "Third"].map((title, i) => ({ const: `value${i + 1}`, title: `${title} Option` })),
  },
  legacyEnum: {
    type: "string",
    enum: ["opt1", "opt2", "opt3"],
    enumNames: ["Option One", "Option Two", "Option Three"],
  },
  untitledMulti: { type: "array", items: { type: "string", enum: ["option1", "option2", "option3"] } },
  titledMulti: {
    type: "array",
    items: {
      anyOf: ["First", "Second", "Third"].map((title, i) => ({ const: `value${i + 1}`, title: `${title} Choice` })),
    },
  },
};

export const SCHEMA_2020_12 = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  $defs: {
    address: {
      $anchor: "addressDef",
      type: "object",
      properties: { street: { type: "string" }, city: { type: "string" } },
    },
  },
  properties: {
    name: { type: "string" },
    address: { $ref: "#/$defs/address" },
    contactMethod: { type: "string", enum: ["phone", "email"] },
    phone: { type: "string" },
    email: { type: "string" },
  },
  allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
  if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: { required: ["phone"] },
  else: { required: ["email"] },
  additionalProperties: false,
};
