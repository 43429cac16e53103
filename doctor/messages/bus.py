"""Messages about the PCI bus: the link, BARs, errors that the bus reports, the IOMMU."""

from __future__ import annotations

from zinc_rt.doctor.messages.message import make_rows

BUS = (
    *make_rows(
        "bar-unassigned",
        "drivers/pci/setup-res.c",
        r"BAR [0-5](?: \[[^\]]*\])?: (?:no space for|failed to assign|can't assign|can't allocate)",
        r"can't (?:claim|reserve) \[mem.*amdgpu",
        r"amdgpu.*Problem resizing BAR\d* \(-(?:12|16|28)\).*fatal",
        r"amdgpu.*BAR 0: .*not (?:set|assigned)",
    ),
    *make_rows(
        "bar-resize",
        "amdgpu/amdgpu_device.c",
        r"Problem resizing BAR ?0",
        r"Not enough PCI address space for a large BAR",  # the driver goes on with the BAR that it had
        r"Unable to resize (?:FB )?BAR",
        r"BAR ?0 .*resize failed",
        r"can't resize BAR",
    ),
    *make_rows(
        "d3cold",
        "drivers/pci/pci.c",
        r"(?:Unable to|can't|cannot) change power state from (?:D3cold|D3hot|unknown) to D0",
        r"not ready \d+ms after (?:resume|D3cold|D3hot->D0)[^;]*; giving up",
        r"device inaccessible",
    ),
    *make_rows(
        "link-lost",
        "drivers/pci/pcie",
        r"(?:amdgpu|kfd).*device lost from bus",
        r"pciehp: Slot.*(?:Link Down|Card not present)",
        r"Surprise (?:Link )?Down",
        r"amdgpu.*(?:has been|is) (?:disconnected|removed from)",
        r"amdgpu.*pci_channel_io_perm_failure",
        r"amdgpu.*config space.*0xffffffff",
        r"amdgpu.*(?:fell|fallen) off the bus",
        r"amdgpu.*PCI (?:device|card) (?:lost|gone)",
        r"not ready \d+ms after (?:FLR|bus reset|link activation)[^;]*; giving up",
        r"Device recovery .*failed",
        r"pciehp: Slot.*Power fault",
        r"unknown header type 7f, ignoring device",  # its configuration space reads as all ones
        # an endpoint that does not answer the IOMMU's invalidation has left the bus
        r"AMD-Vi: Event logged \[IOTLB_INV_TIMEOUT",
    ),
    *make_rows(
        "aer-fatal",
        "drivers/pci/pcie/aer.c",
        r"PCIe Bus Error: severity=Uncorrect\w+ \((?:Fatal|Non-Fatal)\)",
        r"AER: .*(?:Uncorrect\w+|Multiple Uncorrect\w+).*(?:Fatal|Non-Fatal)",
        # the announcement "PCI error: detected callback" names no state; the line after it does
        r"amdgpu.*pci_channel_io_frozen",
        r"DPC: (?:containment event|unmasked uncorrectable error|RP PIO error|ERR_\w*FATAL)",
        r"PCIe error recovery failed",
        r"BERT.*[Ff]atal.*PCIe",
        r"aer_uncor_status: 0x(?!0+\b)[0-9a-f]+",
        r"Hardware Error.*(?:PCIe error|section_type: PCIe)",
        r"pcieport.*\b(?:CmpltTO|MalfTLP|SDES|DLP)\b(?![-+])",
    ),
    *make_rows(
        "aer-corrected",
        "drivers/pci/pcie/aer.c",
        r"PCIe Bus Error: severity=Correct(?:ed|able)",
        r"AER: .*(?:Corrected|Correctable) error",
        r"\b(?:BadTLP|BadDLLP|RxErr|Rollover)\b(?![-+])",
    ),
    *make_rows(
        "bounce-buffer",
        "kernel/dma/swiotlb.c",
        r"swiotlb buffer is full",
        r"Out of SW-IOMMU space",
    ),
    *make_rows(
        "iommu-fault",
        "drivers/iommu",
        r"AMD-Vi: Event logged \[(?:IO_PAGE_FAULT|ILLEGAL_DEV_TABLE_ENTRY|DEV_TAB_HARDWARE_ERROR|"
        r"PAGE_TAB_HARDWARE_ERROR|COMMAND_HARDWARE_ERROR)",
        r"DMAR: \[(?:DMA|INTR)[ -]",
        r"arm-smmu.*(?:event|fault)",
        r"AMD-Vi: Completion-Wait loop timed out",
    ),
    *make_rows(
        "atomics",
        "amdkfd/kfd_device.c",
        r"skipped device \S+, PCI rejects atomics",
        r"PCIE? atomic ops? is not supported",
        r"PCIe atomics? (?:is|are)? ?not supported",
    ),
)
