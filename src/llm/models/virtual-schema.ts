/**
 * What may be written under `virtualModels`: names that stand for several models, by weight, by priority or by conditions.
 */
import { z } from "zod";
import { celSource, exactlyOneOf } from "../../core/schema.ts";

const targetModel = z.string().min(1).max(256).describe("The name of one of `models`.");

export const virtualModelSchema = z.strictObject({
  name: z.string().min(1).max(256).describe("What clients ask for."),
  routing: exactlyOneOf(
    z.strictObject({
      weighted: z
        .strictObject({
          targets: z
            .array(
              z.strictObject({
                model: targetModel,
                weight: z.int().min(0).max(10_000).default(1).describe("Its share. Default: 1."),
              }),
            )
            .min(1),
        })
        .optional()
        .describe("Spreads calls over models."),
      failover: z
        .strictObject({
          targets: z
            .array(
              z.strictObject({
                model: targetModel,
                priority: z.int().min(0).default(0).describe("Lower comes first; equal ones share. Default: 0."),
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
              "Which of the models that fit comes first: the first in the list, or the one whose price for this call is lowest (models without a price come last). The others stand in for it. Default: listed.",
            ),
          targets: z
            .array(
              z.strictObject({
                model: targetModel,
                when: celSource()
                  .optional()
                  .describe(
                    'CEL: the calls that it takes, for example `request.headers["x-tier"] == "gold"` or `jwt.team == "research"`. Default: all.',
                  ),
                maxPromptTokens: z
                  .int()
                  .min(1)
                  .optional()
                  .describe("The largest prompt that it takes, in estimated tokens. Default: any."),
              }),
            )
            .min(1)
            .describe("A call goes to those whose conditions it meets; if it meets none, it is rejected with 400."),
        })
        .optional()
        .describe("Chooses models by what is asked, by whom, and by the price."),
    }),
    ["weighted", "failover", "conditional"],
  ).describe("How a model is chosen."),
});
