import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, type ExchangeParts, finishedRequest } from "../../test/support/exchange.ts";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { requestSubject } from "../core/principal.ts";
import { auditSchema, createAudit } from "./audit.ts";
import type { LogFields } from "./log/logger.ts";
import { createRedaction } from "./trace/redact.ts";

function audited(parts: ExchangeParts): LogFields {
  const records: LogFields[] = [];
  const audit = createAudit(auditSchema.parse({ otlp: true }), {
    clock: fakeClock(),
    redaction: createRedaction(),
    record: (fields) => void records.push(fields),
    isWritable: () => true,
  });
  const exchange = anExchange({ ...parts, llm: { requestModel: "m" } as NonNullable<ExchangeParts["llm"]> });
  Object.assign(exchange.attributes, { backend: { name: "models", type: "ai", protocol: "llm" } });
  audit.begin(exchange);
  audit.settled(finishedRequest(exchange, { status: 200, end: "complete", responseBytes: 1 }, 5));
  assert.equal(records[0]?.subject, requestSubject(exchange.attributes) ?? undefined);
  return records[0] ?? {};
}

test("the subject of a record is that of the other outputs, whatever the identity", () => {
  const token = audited({ jwt: { appid: "app-1", iss: "https://issuer.test" } });
  assert.deepEqual([token.auth, token.subject, token.issuer], ["jwt", "app-1", "https://issuer.test"]);
  const key = audited({ apiKey: { name: "ci" } });
  assert.deepEqual([key.auth, key.subject], ["apiKey", "ci"]);
  const both = audited({ jwt: {}, apiKey: { user_id: "ada" } });
  assert.deepEqual([both.auth, both.subject], ["jwt", "ada"]);
  assert.equal(audited({}).auth, "none");
});
