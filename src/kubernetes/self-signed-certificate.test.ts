import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { checkCertificates } from "../http/certificates.ts";
import { selfSignedCertificate } from "./self-signed-certificate.ts";

test("a certificate that signs itself, for names and addresses", () => {
  const { cert, key } = selfSignedCertificate(
    ["controller.system.svc", "10.0.0.1", "fd00::1:2", "::ffff:192.0.2.1"],
    Date.UTC(2026, 0, 1),
    30,
  );
  checkCertificates({ ca: cert, cert, key });
  const parsed = new X509Certificate(cert);
  assert.equal(parsed.checkHost("controller.system.svc"), "controller.system.svc");
  assert.equal(parsed.checkIP("10.0.0.1"), "10.0.0.1");
  assert.equal(parsed.checkIP("fd00::1:2"), "fd00::1:2");
  assert.equal(parsed.checkIP("::ffff:c000:201"), "::ffff:c000:201");
  assert.equal(parsed.subjectAltName?.split(", ").length, 4);
  assert.equal(parsed.checkHost("other.system.svc"), undefined);
  assert.equal(parsed.ca, true);
  assert.ok(parsed.verify(parsed.publicKey));
  assert.equal(Date.parse(parsed.validTo), Date.UTC(2026, 0, 31));
});
