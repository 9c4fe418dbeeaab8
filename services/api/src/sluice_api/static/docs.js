"use strict";

SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  // Pictures and validators from elsewhere stay away.
  validatorUrl: null,
});
