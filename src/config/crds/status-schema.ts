/**
 * The status parts of our own kinds, as the Gateway API has them.
 */
const CONDITIONS = {
  type: "array",
  maxItems: 8,
  "x-kubernetes-list-type": "map",
  "x-kubernetes-list-map-keys": ["type"],
  items: {
    type: "object",
    required: ["type", "status", "reason", "message", "lastTransitionTime"],
    properties: {
      type: { type: "string", maxLength: 316 },
      status: { type: "string", enum: ["True", "False", "Unknown"] },
      reason: { type: "string", maxLength: 1024 },
      message: { type: "string", maxLength: 32768 },
      observedGeneration: { type: "integer", format: "int64", minimum: 0 },
      lastTransitionTime: { type: "string", format: "date-time" },
    },
  },
};

const REFERENCE = {
  type: "object",
  required: ["name"],
  properties: {
    group: { type: "string" },
    kind: { type: "string" },
    namespace: { type: "string" },
    name: { type: "string" },
  },
};

export const BACKEND_STATUS = {
  description: "Whether the backend is valid.",
  type: "object",
  properties: { conditions: CONDITIONS },
};

export const POLICY_STATUS = {
  description: "For every Gateway that the policy reaches: whether it was accepted and attached.",
  type: "object",
  required: ["ancestors"],
  properties: {
    ancestors: {
      type: "array",
      maxItems: 16,
      items: {
        type: "object",
        required: ["ancestorRef", "controllerName"],
        properties: { ancestorRef: REFERENCE, controllerName: { type: "string" }, conditions: CONDITIONS },
      },
    },
  },
};
