/**
 * OpenAPI descriptions for tests: a small shop with every kind of parameter, and one as large as the largest public
 * APIs.
 */

export const PETSTORE = {
  openapi: "3.0.3",
  info: { title: "Pet store", version: "1.2.0", description: "A shop for tests." },
  servers: [{ url: "https://{region}.shop.example" }, { url: "https://shop.example/v1" }],
  paths: {
    "/pets/{petId}": {
      parameters: [{ $ref: "#/components/parameters/PetId" }],
      get: {
        operationId: "getPet",
        summary: "One pet",
        tags: ["pets"],
        parameters: [
          { name: "fields", in: "query", schema: { type: "array", items: { type: "string" } } },
          { name: "ids", in: "query", explode: false, schema: { type: "array", items: { type: "integer" } } },
          { name: "filter", in: "query", style: "deepObject", schema: { type: "object" } },
          { name: "x-trace", in: "header", schema: { type: "string" } },
          { name: "Authorization", in: "header", schema: { type: "string" } },
          { name: "x-api-key", in: "header", required: true, schema: { type: "string" } },
          { name: "session", in: "cookie", schema: { type: "string" } },
        ],
        responses: { 200: { description: "ok" } },
      },
      delete: { operationId: "deletePet", tags: ["pets"], responses: {} },
    },
    "/pets": {
      post: {
        operationId: "createPet",
        description: "Adds a pet.",
        tags: ["pets"],
        requestBody: {
          required: true,
          content: { "application/json": { schema: { $ref: "#/components/schemas/Pet" } } },
        },
        responses: {},
      },
      get: { tags: ["pets"], responses: {} },
    },
    "/login": {
      post: {
        operationId: "login",
        requestBody: { content: { "application/x-www-form-urlencoded": { schema: { type: "object" } } } },
        responses: {},
      },
    },
    "/files/{name}.json": {
      get: {
        operationId: "readFile",
        parameters: [{ name: "name", in: "path", required: true, schema: { type: "string" } }],
        responses: {},
      },
    },
    "/broken/{id}": { get: { operationId: "broken", responses: {} } },
    "/outside": { get: { operationId: "outside", parameters: [{ $ref: "other.yaml#/x" }], responses: {} } },
    "/image": { get: { operationId: "image", responses: {} } },
    "/list": { get: { operationId: "list", responses: {} } },
    "/teapot": { get: { operationId: "teapot", responses: {} } },
    "/redirect": { get: { operationId: "redirect", responses: {} } },
  },
  components: {
    parameters: {
      PetId: { name: "petId", in: "path", required: true, schema: { type: "string" }, description: "Which" },
    },
    schemas: {
      Pet: {
        type: "object",
        required: ["name"],
        properties: {
          name: { type: "string", example: "Rex" },
          nick: { type: "string", nullable: true },
          age: { type: "integer", minimum: 0, exclusiveMinimum: true },
          parent: { $ref: "#/components/schemas/Pet" },
          owner: { oneOf: [{ $ref: "#/components/schemas/Person" }, { type: "string" }] },
          example: { type: "string" },
        },
      },
      Person: {
        allOf: [
          { type: "object", properties: { pets: { type: "array", items: { $ref: "#/components/schemas/Pet" } } } },
        ],
      },
    },
  },
};

/** 800 operations with shared schemas, at least this many bytes as JSON. */
export function largeDescription(bytes: number): object {
  const schemas = Object.fromEntries(
    Array.from({ length: 400 }, (_, i) => [
      `Model${i}`,
      {
        type: "object",
        description: "word ".repeat(Math.ceil(bytes / 400 / 8)),
        properties: {
          id: { type: "string" },
          ...Object.fromEntries(
            Array.from({ length: 10 }, (_unused, k) => [
              `field${k}`,
              { type: "string", description: "What it means." },
            ]),
          ),
          next: { $ref: `#/components/schemas/Model${(i * 7 + 1) % 400}` },
        },
      },
    ]),
  );
  const paths = Object.fromEntries(
    Array.from({ length: 200 }, (_, i) => [
      `/things${i}/{id}`,
      Object.fromEntries(
        ["get", "put", "post", "delete"].map((method) => [
          method,
          {
            operationId: `${method}Thing${i}`,
            summary: `${method} a thing`,
            description: "long ".repeat(Math.ceil(bytes / 800 / 12)),
            parameters: [{ name: "id", in: "path", required: true, schema: { type: "string" } }],
            ...(method === "put" || method === "post"
              ? {
                  requestBody: {
                    content: { "application/json": { schema: { $ref: `#/components/schemas/Model${i}` } } },
                  },
                }
              : {}),
            responses: { 200: { description: "x ".repeat(Math.ceil(bytes / 800 / 8)) } },
          },
        ]),
      ),
    ]),
  );
  return { openapi: "3.1.0", info: { title: "Large", version: "1" }, paths, components: { schemas } };
}
