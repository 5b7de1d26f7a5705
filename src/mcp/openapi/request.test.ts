import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { cpuMs } from "../../../test/support/cpu-time.ts";
import type { OpenApiDocument } from "./document.ts";
import { convertOperations, type Operation } from "./operations.ts";
import { ArgumentProblem, apiRequest } from "./request.ts";

const TEMPLATES = ["/items/{id}", "/items/{id}/public", "/v.{id}/x", "/.{id}/x", "/a;{id}/x", "/files/{id}.json"];

function operationAt(path: string): Operation {
  const parameter = {
    name: "id",
    argument: "id",
    in: "path",
    isRequired: true,
    isJson: false,
    style: "simple",
    explode: false,
  };
  return { method: "GET", path, parameters: [parameter], body: undefined } as unknown as Operation;
}

/** As servers read it that decode any number of times, and that cut path parameters off. */
function readingsOf(path: string): string[] {
  const readings = [path];
  for (let round = 0; round < 6; round++)
    readings.push(
      (readings.at(-1) as string).replace(/%([0-7][0-9a-f])/gi, (_, hex: string) =>
        String.fromCharCode(Number.parseInt(hex, 16)),
      ),
    );
  return [...readings, ...readings.map((reading) => reading.replace(/;[^/\\]*/g, ""))];
}

test("no argument changes the number of segments of a tool's path or steps out of them [L17]", () => {
  const pieces = fc.constantFrom(
    "..", ".", "/", "\\", "%2e", "%2F", "%5c", "%252e", "%25", "2f", "e", ";", "%3b", " ", "a", "id-1", "é", "\n", "%00", "%c0%af",
  ); // biome-ignore format: a table
  const values = fc.oneof(
    fc.string(),
    fc.array(pieces, { maxLength: 5 }).map((all) => all.join("")),
  );
  let sent = 0;
  fc.assert(
    fc.property(fc.constantFrom(...TEMPLATES), values, (template, id) => {
      let path: string;
      try {
        ({ path } = apiRequest(operationAt(template), { id }, undefined));
      } catch (error) {
        assert.ok(error instanceof ArgumentProblem, String(error));
        return;
      }
      sent += 1;
      const count = template.split("/").length;
      for (const reading of readingsOf(path)) {
        const segments = reading.split(/[/\\]/);
        assert.equal(segments.length, count, `${template} with ${JSON.stringify(id)} is read as ${reading}`);
        assert.ok(
          segments.every((segment) => !/^\.{1,2} *$/.test(segment)),
          `${template} with ${JSON.stringify(id)} is read as ${reading}`,
        );
      }
    }),
    { numRuns: 4_000 },
  );
  assert.ok(sent > 500, `only ${sent} requests would be sent`);
});

test("an argument that cannot be part of a path is rejected with the reason", () => {
  assert.throws(
    () => apiRequest(operationAt("/items/{id}"), { id: "a/b" }, undefined),
    /one segment without \/ and \\/,
  );
});

test("an operation with an invalid path is skipped", () => {
  const id = { name: "id", in: "path", required: true, schema: { type: "string" } };
  const get = { operationId: "get", parameters: [id], responses: {} };
  for (const path of ["/%2{id}/x", "/a/../{id}", "/a\\{id}"]) {
    const document = { root: { paths: { [path]: { get } } } } as unknown as OpenApiDocument;
    const steps = convertOperations(document, { reserved: [] } as never);
    let step = steps.next();
    while (step.done !== true) step = steps.next();
    assert.equal(step.value.byName.size, 0, path);
    assert.match(step.value.left[0]?.reason ?? "", /no server would accept/, path);
  }
});

test("no value of a multipart form can make the boundary longer or contain it", () => {
  const post = { ...operationAt("/items/x"), method: "POST", parameters: [] };
  const operation = {
    ...post,
    body: { kind: "multipart", type: "multipart/form-data", isRequired: true },
  } as Operation;
  const body = { text: `form-${"-x".repeat(100_000)}` };
  const startMs = cpuMs();
  const { headers, body: bytes } = apiRequest(operation, { body }, JSON.stringify(body));
  assert.ok(cpuMs() - startMs < 200);
  const boundary = /boundary=([\w-]{20,70})$/.exec(headers.get("content-type") ?? "")?.[1];
  assert.equal(
    bytes?.toString(),
    `--${boundary}\r\ncontent-disposition: form-data; name="text"\r\n\r\n${body.text}\r\n--${boundary}--\r\n`,
  );
});
